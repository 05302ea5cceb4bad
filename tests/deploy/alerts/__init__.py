"""What each alert rule does on which readings: one table for each alert."""

from collections.abc import Mapping

from tests.deploy.alerts.case import Case
from tests.deploy.alerts.clocks import CLOCKS
from tests.deploy.alerts.gpus import GPUS
from tests.deploy.alerts.itself import ITSELF
from tests.deploy.alerts.sinks import SINKS
from tests.deploy.alerts.use import USE
from tests.deploy.alerts.xids import XIDS

TABLES: Mapping[str, tuple[Case, ...]] = {**GPUS, **CLOCKS, **XIDS, **USE, **ITSELF, **SINKS}
"""By the alert's name; the first case of each fires and says what people read."""
