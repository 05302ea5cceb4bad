"""Under which names a field is pushed, and in which unit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pipeline.exposition.naming import PageNaming
from pipeline.fields import Field, Row
from sinks.otlp.encoding.semconv import INSTRUMENTS, STATUS, Instrument, Kind

UCUM: Final[Mapping[str, str]] = MappingProxyType(
    {
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
)
"""The catalogue's units, and DCGM's, in UCUM."""

_SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ratio": "_ratio",
        "percent": "_percent",
        "celsius": "_celsius",
        "watts": "_watts",
        "millijoules": "_millijoules",
        "MHz": "_mhz",
        "bytes": "_bytes",
        "bytes/s": "_bytes_per_second",
        "seconds": "_seconds",
        "nanoseconds": "_nanoseconds",
    }
)
"""How a name of podgpu's ends that has its unit in it. Prometheus puts it there again."""

_PREFIXES: Final = (
    ("DCGM_FI_DEV_", "dcgm."),
    ("DCGM_FI_PROF_", "dcgm.prof."),
    ("DCGM_EXP_", "dcgm."),
)

_FRACTIONS: Final = frozenset(
    {"ratio", "percent", "celsius", "watts", "MHz", "bytes/s", "seconds", "MiB"}
)
"""Units whose values needn't be integers."""

_BUSY_GPU: Final = "gpu_utilization_percent"
_BUSY_INSTANCE: Final = "graphics_engine_active_ratio"


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """How a field is pushed.

    Attributes:
        instrument: the metric.
        attrs: attributes that stand on its points, besides the device's and the reading's own.
        divisor: the model's value divided by this is in the metric's unit.
        is_own: it carries podgpu's attributes, not DCGM's.
    """

    instrument: Instrument
    attrs: tuple[tuple[str, str], ...] = ()
    divisor: int = 1
    is_own: bool = True


def semconv_mapping(row: Row, *, instance: bool) -> FieldMapping | None:
    """Return how a field is told in the names of the conventions.

    Args:
        row: the field; how a counters file wants it named doesn't matter here.
        instance: the device is a MIG instance.

    Returns:
        None for what is told by `hw.status` alone.
    """
    field = row.field
    if field.otel == STATUS.name:
        return None
    # The driver gives utilisation for whole GPUs alone, and what the engines did stands for it on a
    # MIG instance: one series never has both.
    if field.name == _BUSY_INSTANCE and instance:
        return FieldMapping(INSTRUMENTS["hw.gpu.utilization"], (("hw.gpu.task", "general"),))
    if field.otel and not (field.name == _BUSY_GPU and instance):
        return FieldMapping(INSTRUMENTS[field.otel], field.otel_attrs, field.otel_divisor)
    return _dcgm_derived(field) if field.dcgm else _own_mapping(field)


def dcgm_mapping(row: Row, style: PageNaming) -> FieldMapping:
    """Return how a field is told in the names of the Prometheus page, without a unit.

    Args:
        row: the field, and how a counters file wants it named.
        style: of the page.
    """
    field, name = row.field, style.metric(row)
    own = style.is_own(name)
    divisor = 1 if own else field.dcgm_divisor
    about = row.help or field.help
    if field.dcgm_unit and not (row.help or own):
        about = f"{about} In {field.dcgm_unit}."
    kind = row.type or _kind(field)
    whole = divisor == 1 and field.unit not in _FRACTIONS
    return FieldMapping(
        Instrument(name, "counter" if kind == "counter" else "gauge", "", whole, about),
        divisor=divisor,
        is_own=own,
    )


def _dcgm_derived(field: Field) -> FieldMapping:
    """Return a name made of DCGM's, with its value in DCGM's unit.

    Its `1000 KiB/s` has no name in UCUM: what is in that unit stays in bytes per second.
    """
    name = next(
        new + field.dcgm.removeprefix(old).lower()
        for old, new in _PREFIXES
        if field.dcgm.startswith(old)
    )
    told = _own_mapping(field)
    metric = replace(told.instrument, name=name)
    unit = UCUM.get(field.dcgm_unit)
    if unit is None:
        return replace(told, instrument=metric)
    metric = replace(metric, unit=unit, whole=field.dcgm_unit not in _FRACTIONS)
    return replace(told, instrument=metric, divisor=field.dcgm_divisor)


def _own_mapping(field: Field) -> FieldMapping:
    name = f"podgpu.{field.name.removesuffix(_SUFFIXES.get(field.unit, ''))}"
    whole = field.unit not in _FRACTIONS
    return FieldMapping(Instrument(name, _kind(field), UCUM[field.unit], whole, field.help))


def _kind(field: Field) -> Kind:
    return "counter" if field.type == "counter" else "gauge"
