"""`podgpu top`: show the status of a node, live in a terminal.

`command` runs the command, and queries the daemon in a thread. `ui_state` has what the user
has selected. `view` renders it, with the rows from `columns`. These three are pure. Only `screen`
uses curses.
"""
