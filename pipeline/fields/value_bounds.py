"""Bounds for the values of fields. A value outside of them is a fault of the reading."""

import math
from collections.abc import Mapping
from typing import Final

from pipeline.fields.field import Field

_ANY: Final = (0.0, 9.2e18)
"""0 or more, and of at most 63 bits."""

_BY_UNIT: Final[Mapping[str, tuple[float, float]]] = {
    # A mean over many samples may be slightly above 1.
    "ratio": (0, 1.01),
    "percent": (0, 100),
    "bool": (0, 1),
    "state": (0, 15),
    "celsius": (-100, 250),
    "watts": (0, 100_000),
    "MHz": (0, 100_000),
}

_BY_NAME: Final[Mapping[str, tuple[float, float]]] = {
    # A fan may be driven beyond its rating.
    "fan_speed_percent": (0, 250),
    "memory_total_bytes": (0, 1 << 50),
    "memory_free_bytes": (0, 1 << 50),
    "memory_used_bytes": (0, 1 << 50),
    "memory_reserved_bytes": (0, 1 << 50),
}


def possible(field: Field, value: float) -> bool:
    """Return whether a value, in podgpu's unit of the field, is possible; NaN is not."""
    least, most = _BY_NAME.get(field.name) or _BY_UNIT.get(field.unit, _ANY)
    return least <= value <= most


_BLANK32: Final = 0x7FFFFFF0
_BLANK64: Final = 0x7FFFFFFFFFFFFFF0
_BLANK_FLOAT: Final = 1 << 47

_BLANKS: Final = 16
"""Number of consecutive values, from the blank one on, that mean no value: unknown, not found, not
supported, not permitted, and reserved ones."""


def is_blank(value: float) -> bool:
    """Return whether a value of DCGM, or of an exporter that passes it on, means "no value"."""
    return (
        not math.isfinite(value)
        or value >= _BLANK64
        or 0 <= value - _BLANK32 < _BLANKS
        or 0 <= value - _BLANK_FLOAT < _BLANKS
    )
