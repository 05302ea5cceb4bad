"""Map fields, usage metrics and podgpu's own metrics to OTLP metric names and units."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from pipeline.base.telemetry import Family
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.usage_metrics import CONTAINER_BUSY_ERROR, CONTAINER_XIDS
from pipeline.exposition.usage_metrics import Family as UsageFamily
from pipeline.fields import Field, Row
from sinks.otlp.encoding.semconv import INSTRUMENTS, STATUS, Instrument, Kind

UCUM: Final[Mapping[str, str]] = {
    "ratio": "1",
    "percent": "%",
    "celsius": "Cel",
    "watts": "W",
    "millijoules": "mJ",
    "MHz": "MHz",
    "bytes": "By",
    "bytes/s": "By/s",
    "MiB": "MiBy",
    "seconds": "s",
    "milliseconds": "ms",
    "nanoseconds": "ns",
    "mW/s": "mW/s",
    "MB/s": "MBy/s",
    "errors": "{error}",
    "rows": "{row}",
    "pages": "{page}",
    "packets": "{packet}",
    "processes": "{process}",
    "samples": "{sample}",
    "events": "{event}",
    "banks": "{bank}",
    "lanes": "{lane}",
    "links": "{link}",
    "profiles": "{profile}",
    "slices": "{slice}",
    "GPUs": "{gpu}",
    "bool": "",
    "state": "",
    "code": "",
    "bitmask": "",
    "number": "",
    "version": "",
}
"""The units of the catalogue and of DCGM, in UCUM."""

_PREFIXES: Final = (
    ("DCGM_FI_DEV_", "dcgm."),
    ("DCGM_FI_PROF_", "dcgm.prof."),
    ("DCGM_FI_CUDA_", "dcgm.cuda."),
    ("DCGM_EXP_", "dcgm."),
)

_UNITS: Final = {"bytes": "By", "seconds": "s", "joules": "J"}
"""Units in UCUM, by the last part of a name on the Prometheus page."""

_DOTS: Final = {"podgpu": 2, "process": 1}
"""How many underscores of the name of an own metric become dots, by the name's first part."""

_FRACTIONAL: Final = frozenset(
    {"ratio", "percent", "celsius", "watts", "MHz", "bytes/s", "seconds", "MiB"}
)
"""Units whose values may be fractions."""

_GPU_UTILIZATION: Final = "gpu_utilization_percent"
_INSTANCE_UTILIZATION: Final = "graphics_engine_active_ratio"


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """How to send a field.

    Attributes:
        instrument: the metric.
        attrs: attributes of its points, in addition to those of the device and of the reading.
        divisor: divides the catalogue's value to get the metric's unit.
        is_own: whether the points have podgpu's attributes, not DCGM's.
    """

    instrument: Instrument
    attrs: tuple[tuple[str, str], ...] = ()
    divisor: int | Fraction = 1
    is_own: bool = True


def semconv_mapping(row: Row, *, instance: bool) -> FieldMapping | None:
    """Return how to send a field, with names of the semantic conventions.

    Args:
        row: the field. Names from a counters file are ignored.
        instance: whether the device is a MIG instance.

    Returns:
        The mapping; None if the field is only an input of `hw.status`.
    """
    field = row.field
    if field.otel == STATUS.name:
        return None
    # The driver reports utilization for whole GPUs only. For a MIG instance the activity of the
    # graphics engine takes its place, so a device never has both series.
    if field.name == _INSTANCE_UTILIZATION and instance:
        return FieldMapping(INSTRUMENTS["hw.gpu.utilization"], (("hw.gpu.task", "general"),))
    if field.otel and not (field.name == _GPU_UTILIZATION and instance):
        return FieldMapping(INSTRUMENTS[field.otel], field.otel_attrs, field.otel_divisor)
    return _dcgm_derived(field) if field.dcgm else _own_mapping(field)


def dcgm_mapping(row: Row, naming: PageNaming) -> FieldMapping:
    """Return how to send a field, with the names of the Prometheus page and without a unit.

    Args:
        row: the field, with names from a counters file.
        naming: metric names of the page.
    """
    field, name = row.field, naming.metric(row)
    own = naming.is_own(name)
    divisor = field.unit_in(name).divisor
    kind = row.type or _kind(field)
    whole = divisor == 1 and field.unit not in _FRACTIONAL
    return FieldMapping(
        Instrument(
            name, "counter" if kind == "counter" else "gauge", "", whole, naming.help_text(row)
        ),
        divisor=divisor,
        is_own=own,
    )


def _dcgm_derived(field: Field) -> FieldMapping:
    """Return a mapping with a name derived from DCGM's, and a value in DCGM's unit.

    DCGM's unit `1000 KiB/s` has no UCUM name. Such fields stay in bytes per second.
    """
    name = next(
        new + field.dcgm.removeprefix(old).lower()
        for old, new in _PREFIXES
        if field.dcgm.startswith(old)
    )
    mapping = _own_mapping(field)
    metric = replace(mapping.instrument, name=name)
    unit = UCUM.get(field.dcgm_unit)
    if unit is None:
        return replace(mapping, instrument=metric)
    metric = replace(metric, unit=unit, whole=field.dcgm_unit not in _FRACTIONAL)
    return replace(mapping, instrument=metric, divisor=field.dcgm_divisor)


def _own_mapping(field: Field) -> FieldMapping:
    unit, name = UCUM[field.unit], field.name
    if unit and not unit.startswith("{"):
        # Prometheus adds a suffix for the unit again.
        name = name.removesuffix("_" + field.unit.lower().replace("/s", "_per_second"))
    whole = field.unit not in _FRACTIONAL
    return FieldMapping(Instrument(f"podgpu.{name}", _kind(field), unit, whole, field.help))


def _kind(field: Field) -> Kind:
    return "counter" if field.type == "counter" else "gauge"


@lru_cache(maxsize=256)
def own_instrument(family: Family, suffix: str = "", *, page: bool = False) -> Instrument:
    """Return the OTLP metric of one of podgpu's own metrics. A summary has two: sum and count.

    Underscores between the parts of a Prometheus name become dots. The suffixes that Prometheus
    adds again, unit and `_total`, are removed.

    Args:
        family: the metric.
        suffix: suffix of the point's name, such as `_sum`.
        page: whether to use the name of the Prometheus page.
    """
    kind: Kind = "gauge" if family.type == "gauge" else "counter"
    name, unit = (family.name, "") if page else _without_unit(family.name)
    if not page:
        name = name.replace("_", ".", _DOTS.get(name.partition("_")[0], 0))
        suffix = suffix.replace("_", ".")
    if suffix == ".count":
        unit = ""
    return Instrument(name + suffix, kind, unit, whole=False, description=family.help)


def usage_instrument(family: UsageFamily, *, page: bool) -> Instrument:
    """Return the OTLP metric for a usage metric.

    The semantic conventions have no such metrics. A receiver that converts these names to
    Prometheus names gets those of the Prometheus page.

    Args:
        family: the usage metric.
        page: use name and type of the Prometheus page; the metric then has no unit.
    """
    whole = family.divisor == 1
    if page:
        return Instrument(family.metric, family.kind, "", whole, family.about)
    name, unit = _without_unit(family.metric)
    name = name.replace("_", ".")
    if family is CONTAINER_XIDS:
        name, unit = "podgpu.container.xid_errors", "{error}"
    kind: Kind = "counter" if family.kind == "counter" else "updowncounter"
    if family is CONTAINER_BUSY_ERROR:  # not below podgpu.container.busy, and not additive
        name, kind = "podgpu.container.busy_error", "gauge"
    return Instrument(name, kind, unit, whole, family.about)


def _without_unit(name: str) -> tuple[str, str]:
    """Return a name of the Prometheus page without `_total` and unit, and the unit in UCUM."""
    name = name.removesuffix("_total")
    stem, _, word = name.rpartition("_")
    return (stem, _UNITS[word]) if word in _UNITS else (name, "")
