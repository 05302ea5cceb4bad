"""What a ledger tells, grouped for people: who had how much, and what that cost.

Pure: it takes a `Window` and returns a `Report`, whose rows add up to the node's totals exactly.
"""

from pipeline.ledger.reports.costs import Prices
from pipeline.ledger.reports.groups import By, ByError, Key
from pipeline.ledger.reports.report import Report, Row, report
from pipeline.ledger.reports.sums import Sum

__all__ = ["By", "ByError", "Key", "Prices", "Report", "Row", "Sum", "report"]
