"""OTLP names of the usage metrics.

The semantic conventions have no such metrics. A receiver that converts these names to Prometheus
names gets those of the Prometheus page.
"""

from typing import Final

from pipeline.exposition.usage_metrics import CONTAINER_XIDS, Family
from sinks.otlp.encoding.semconv import Instrument, Kind

_UNITS: Final = {"bytes": "By", "seconds": "s", "joules": "J"}
"""Units in UCUM, by the last part of a name on the Prometheus page."""


def instrument(family: Family, *, page: bool) -> Instrument:
    """Return the OTLP metric for a usage metric.

    Args:
        family: the usage metric.
        page: use name and type of the Prometheus page; the metric then has no unit.
    """
    whole = family.divisor == 1
    if page:
        return Instrument(family.metric, family.kind, "", whole, family.about)
    if family is CONTAINER_XIDS:
        name, unit = "podgpu.container.xid_errors", "{error}"
    else:
        stem, _, word = family.metric.removesuffix("_total").rpartition("_")
        name, unit = stem.replace("_", "."), _UNITS[word]
    kind: Kind = "counter" if family.kind == "counter" else "updowncounter"
    return Instrument(name, kind, unit, whole, family.about)
