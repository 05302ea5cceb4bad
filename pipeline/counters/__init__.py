"""The counters list: which fields to read and export, in dcgm-exporter's file format.

`csv_rows` parses the text, `plan_builder` turns rows into a plan, `list_source` reads the text from
a file or a ConfigMap, and `list_follower` reads it again when it changes. An invalid row is
skipped, and reported with its line number.
"""
