"""Converts DCGM's values to values of the model."""

import math
from collections.abc import Mapping
from typing import Final

from pipeline.fields import CATALOGUE, Field

BLANKS: Final = 16
"""Number of values, from the blank one on, that mean no value: unknown, not found, not supported,
not permitted, and reserved ones."""

_BLANK32: Final = 0x7FFFFFF0
_BLANK64: Final = 0x7FFFFFFFFFFFFFF0
_BLANK_FLOAT: Final = 1 << 47


def is_blank(value: float) -> bool:
    """Return whether a value of DCGM, or of an exporter that passes it on, means no value."""
    return (
        not math.isfinite(value)
        or value >= _BLANK64
        or 0 <= value - _BLANK32 < BLANKS
        or 0 <= value - _BLANK_FLOAT < BLANKS
    )


def _names() -> Mapping[str, tuple[tuple[Field, int], ...]]:
    """Return fields and factors for their values, by names on a page."""
    found: dict[str, dict[str, tuple[Field, int]]] = {}
    for field in CATALOGUE:
        dcgm_names = (field.dcgm, field.dcgm_1x, *field.aliases)
        for name in filter(None, dcgm_names):
            found.setdefault(name, {})[field.name] = (field, field.dcgm_divisor)
        found.setdefault(field.podgpu_metric, {}).setdefault(field.name, (field, 1))
    return {name: tuple(fields.values()) for name, fields in found.items()}


_NAMES: Final = _names()

_RATES: Final = {
    name: next(entry for entry in fields if entry[0].dcgm == name)
    for name, fields in _NAMES.items()
    if len(fields) > 1
}
"""DCGM's field for each name that two fields share."""


def field_of(name: str, kind: str, *, typed: bool) -> tuple[Field, int] | None:
    """Return the field of a metric, and the factor that converts the page's value to the model's.

    Args:
        name: of the metric.
        kind: its type on the page.
        typed: whether types distinguish two fields with one name, as on a page of podgpu. On a page
            of dcgm-exporter, the counters file sets the type, and the value is DCGM's.
    """
    if not typed and (rate := _RATES.get(name.upper())):
        return rate
    fields = _NAMES.get(name, ())
    return next((entry for entry in fields if entry[0].type == kind), next(iter(fields), None))
