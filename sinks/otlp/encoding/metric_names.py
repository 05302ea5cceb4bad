"""Map fields to OTLP metric names and units."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pipeline.exposition.naming import PageNaming
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
    "nanoseconds": "ns",
    "errors": "{error}",
    "rows": "{row}",
    "pages": "{page}",
    "packets": "{packet}",
    "processes": "{process}",
    "samples": "{sample}",
    "bool": "",
    "state": "",
    "code": "",
    "bitmask": "",
}
"""The units of the catalogue and of DCGM, in UCUM."""

_PREFIXES: Final = (
    ("DCGM_FI_DEV_", "dcgm."),
    ("DCGM_FI_PROF_", "dcgm.prof."),
    ("DCGM_EXP_", "dcgm."),
)

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
        is_own: it has podgpu's attributes, not DCGM's.
    """

    instrument: Instrument
    attrs: tuple[tuple[str, str], ...] = ()
    divisor: int = 1
    is_own: bool = True


def semconv_mapping(row: Row, *, instance: bool) -> FieldMapping | None:
    """Return how to send a field with names of the semantic conventions.

    Args:
        row: the field. Names from a counters file are ignored.
        instance: whether the device is a MIG instance.

    Returns:
        None if the field is only an input of `hw.status`.
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
    """Return how to send a field with the names of the Prometheus page, without a unit.

    Args:
        row: the field, with names from a counters file.
        naming: metric names of the page.
    """
    field, name = row.field, naming.metric(row)
    own = naming.is_own(name)
    divisor = 1 if own else field.dcgm_divisor
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
