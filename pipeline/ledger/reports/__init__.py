"""Usage reports: the usage in a span of time, by group, and its cost.

Pure: `build_report` turns a `UsageWindow` of one node into a `Report`, whose rows sum to the node's
totals. `report_of_groups` builds a `Report` from usage that is already grouped and summed.
"""

from pipeline.ledger.reports.costs import Prices, Tariff
from pipeline.ledger.reports.device_choice import DeviceChoiceError, choose_device
from pipeline.ledger.reports.grouped_usage import GroupedUsage, PriceClass
from pipeline.ledger.reports.groups import GroupBy, GroupByError, GroupKey, device_names
from pipeline.ledger.reports.report import Report, Row, build_report, report_of_groups
from pipeline.ledger.reports.sums import Sum, Tally

__all__ = [
    "DeviceChoiceError",
    "GroupBy",
    "GroupByError",
    "GroupKey",
    "GroupedUsage",
    "PriceClass",
    "Prices",
    "Report",
    "Row",
    "Sum",
    "Tally",
    "Tariff",
    "build_report",
    "choose_device",
    "device_names",
    "report_of_groups",
]
