"""The counters list: which fields to read and export, in dcgm-exporter's file format.

`csv_rows` parses the text, `plan_builder` turns rows into a plan, and `list_source` reads the text
again when it changes. A faulty row is skipped, and reported with its line number.
"""
