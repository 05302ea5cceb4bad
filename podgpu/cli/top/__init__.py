"""`podgpu top`: show the status of a node, live in a terminal.

`command` runs the command, and `poller` queries the daemon in a thread. `ui_state` has what the
user has selected. `view` renders the screen: `screen_frame` its header and footer, `problem_lines`
what is wrong, `device_rows` the rows of GPUs, which `table_layout` or `narrow_layout` draws,
`usage_lines` the day and the weeks, `component_lines` sources and sinks. All of them are pure. Only
`screen` uses curses.
"""
