"""What a ledger tells, grouped for people: who had how much, and what that cost.

Pure: it takes a `Window` and returns a `Report`, whose rows add up to the node's totals exactly.
"""

from pipeline.ledger.reports.costs import Prices
from pipeline.ledger.reports.groups import GroupBy, GroupByError, GroupKey
from pipeline.ledger.reports.report import Report, Row, build_report
from pipeline.ledger.reports.sums import Sum

__all__ = ["GroupBy", "GroupByError", "GroupKey", "Prices", "Report", "Row", "Sum", "build_report"]
