"""Test cases of the alert rules: a table for each alert."""

from collections.abc import Mapping

from tests.deploy.alerts.affected import AFFECTED
from tests.deploy.alerts.case import Case
from tests.deploy.alerts.clocks import CLOCKS
from tests.deploy.alerts.exporter import EXPORTER
from tests.deploy.alerts.gpus import GPUS
from tests.deploy.alerts.sinks import SINKS
from tests.deploy.alerts.usage import USAGE
from tests.deploy.alerts.xids import XIDS

TABLES: Mapping[str, tuple[Case, ...]] = {
    **GPUS, **CLOCKS, **XIDS, **AFFECTED, **USAGE, **EXPORTER, **SINKS,
}  # fmt: skip
"""The cases by alert name; the first case of each fires and has the texts of the alert."""
