"""What a ledger tells, grouped for people: who had how much, and what that cost.

Pure: it takes a `Window` and returns a `Report`, whose rows add up to the node's totals exactly.
"""

from pipeline.ledger.reporting.grouping import By, ByError, Key
from pipeline.ledger.reporting.prices import Prices
from pipeline.ledger.reporting.report import Report, Row, report
from pipeline.ledger.reporting.sums import Sum

__all__ = ["By", "ByError", "Key", "Prices", "Report", "Row", "Sum", "report"]
