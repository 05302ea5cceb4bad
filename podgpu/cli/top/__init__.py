"""`podgpu top`: show the status of a node, live in a terminal.

`command` runs the command, and queries the daemon in a thread. `ui_state` has what the user has
selected. `view` renders the screen, with the rows from `columns`. `ui_state`, `view` and `columns`
are pure. Only `screen` uses curses.
"""
