"""`podgpu usage`: who used how much, as a ledger's file tells it.

`command` is the command, `finding` says which file, `report_table` and `holding_table` are for
people, `forms` and `holding_forms` for programs.
"""
