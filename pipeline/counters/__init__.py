"""The counters list: which fields somebody asked for, in dcgm-exporter's own file format.

`csv` reads the text, `planning` turns rows into a plan, `following` gets the text and gets it again
when it changes. What is wrong with a row costs that row, and is told with its line.
"""
