"""`podgpu usage`: report GPU usage from a ledger file.

`command` finds the file and runs the command. `report_table` formats reports and lists of holdings
as text tables, `report_csv_json` as JSON and CSV.
"""
