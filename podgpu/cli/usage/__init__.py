"""`podgpu usage`: who used how much, as a ledger's file tells it.

`command` is the command, `ledger_location` says which file, `report_table` and `holding_table` are
for people, `report_formats` and `holding_formats` for programs.
"""
