"""`podgpu usage`: report GPU usage from a ledger file.

`command` finds the ledger file and runs the command. `report_table` formats reports and lists of
holdings as text tables, `report_csv_json` as CSV and JSON. `time_span` parses the times.
"""
