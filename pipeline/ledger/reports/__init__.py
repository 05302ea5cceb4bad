"""Usage reports: the usage in a span of time, by group, and its cost.

Pure: `build_report` turns a `UsageWindow` into a `Report`, whose rows sum to the node's totals.
"""

from pipeline.ledger.reports.costs import Prices, Sum
from pipeline.ledger.reports.groups import GroupBy, GroupByError, GroupKey
from pipeline.ledger.reports.report import Report, Row, build_report

__all__ = ["GroupBy", "GroupByError", "GroupKey", "Prices", "Report", "Row", "Sum", "build_report"]
