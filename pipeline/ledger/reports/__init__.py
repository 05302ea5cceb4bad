"""Usage reports: the usage in a span of time, by group, and its cost.

Pure: `build_report` turns a `UsageWindow` into a `Report`, whose rows sum to the node's totals.
"""

from pipeline.ledger.reports.costs import Prices, Sum
from pipeline.ledger.reports.device_choice import DeviceChoiceError, choose_device
from pipeline.ledger.reports.groups import GroupBy, GroupByError, GroupKey, device_names
from pipeline.ledger.reports.report import Report, Row, build_report

__all__ = [
    "DeviceChoiceError",
    "GroupBy",
    "GroupByError",
    "GroupKey",
    "Prices",
    "Report",
    "Row",
    "Sum",
    "build_report",
    "choose_device",
    "device_names",
]
