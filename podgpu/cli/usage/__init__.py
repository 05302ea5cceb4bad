"""`podgpu usage`: report GPU usage from a ledger file.

`command` runs the command. `ledger_location` finds the file. `report_table` and `holding_table`
format text tables, `report_formats` and `holding_formats` JSON and CSV.
"""
