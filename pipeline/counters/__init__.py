"""The counters list: which fields somebody asked for, in dcgm-exporter's own file format.

`csv_rows` reads the text, `plan_builder` turns rows into a plan, `list_source` gets the text and
gets it again when it changes. What is wrong with a row costs that row, and is told with its line.
"""
