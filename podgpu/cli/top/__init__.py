"""`podgpu top`: the status of a node, live in a terminal.

`command` is the command; `poller` asks the daemon beside everything else; `ui_state` is what the
user has chosen, `view` what that looks like, `body` the rows of it, all pure; `screen` alone knows
of curses.
"""
