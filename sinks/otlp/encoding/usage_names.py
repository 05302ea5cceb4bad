"""OTLP names of the usage metrics.

The semantic conventions have no such metrics. A receiver that converts these names to Prometheus
names gets those of the Prometheus page.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pipeline.exposition.usage_metrics import USAGE_FAMILIES, Family
from sinks.otlp.encoding.semconv import Instrument, Kind

_NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "podgpu_container_memory_used_bytes": ("podgpu.container.memory.used", "By"),
        "podgpu_container_busy_seconds_total": ("podgpu.container.busy", "s"),
        "podgpu_container_held_seconds_total": ("podgpu.container.held", "s"),
        "podgpu_container_energy_joules_total": ("podgpu.container.energy", "J"),
        "podgpu_container_xid_errors_total": ("podgpu.container.xid_errors", "{error}"),
        "podgpu_device_unattributed_memory_used_bytes": (
            "podgpu.device.unattributed.memory.used",
            "By",
        ),
        "podgpu_device_unattributed_busy_seconds_total": (
            "podgpu.device.unattributed.busy",
            "s",
        ),
        "podgpu_device_unattributed_held_seconds_total": (
            "podgpu.device.unattributed.held",
            "s",
        ),
        "podgpu_device_free_seconds_total": ("podgpu.device.free", "s"),
        "podgpu_device_unknown_held_seconds_total": ("podgpu.device.unknown.held", "s"),
        "podgpu_device_unattributed_energy_joules_total": (
            "podgpu.device.unattributed.energy",
            "J",
        ),
        "podgpu_device_busy_seconds_total": ("podgpu.device.busy", "s"),
        "podgpu_device_accounted_seconds_total": ("podgpu.device.accounted", "s"),
    }
)
"""Name with dots and UCUM unit, by the name on the Prometheus page."""


def instrument(family: Family, *, page: bool) -> Instrument:
    """Return the OTLP metric for a usage metric.

    Args:
        family: the usage metric.
        page: use name and type of the Prometheus page; the metric then has no unit.
    """
    whole = family.divisor == 1
    if page:
        return Instrument(family.metric, family.kind, "", whole, family.about)
    name, unit = _NAMES[family.metric]
    kind: Kind = "counter" if family.kind == "counter" else "updowncounter"
    return Instrument(name, kind, unit, whole, family.about)


INSTRUMENTS: Final = tuple(instrument(family, page=False) for family in USAGE_FAMILIES)
"""All usage metrics, in the order of the page."""
