"""From a value as DCGM writes it to one of the model."""

import math
from collections.abc import Mapping
from typing import Final

from pipeline.fields import CATALOGUE, Field

BLANKS: Final = 16
"""How many values from the blank one on mean that there is none: unknown, not found, not supported,
not permitted, and some that are kept free."""

_BLANK32: Final = 0x7FFFFFF0
_BLANK64: Final = 0x7FFFFFFFFFFFFFF0
_BLANK_FLOAT: Final = 1 << 47


def is_blank(value: float) -> bool:
    """Whether DCGM, or an exporter that doesn't know better, says by it that there is no value."""
    return (
        not math.isfinite(value)
        or value >= _BLANK64
        or 0 <= value - _BLANK32 < BLANKS
        or 0 <= value - _BLANK_FLOAT < BLANKS
    )


def _names() -> Mapping[str, tuple[tuple[Field, int], ...]]:
    """Return fields and what their values are to be multiplied with, by names on a page."""
    found: dict[str, dict[str, tuple[Field, int]]] = {}
    for field in CATALOGUE:
        theirs = (field.dcgm, field.dcgm_1x, *field.aliases)
        for name in filter(None, theirs):
            found.setdefault(name, {})[field.name] = (field, field.dcgm_divisor)
        found.setdefault(field.podgpu_metric, {}).setdefault(field.name, (field, 1))
    return {name: tuple(fields.values()) for name, fields in found.items()}


_NAMES: Final = _names()

_RATES: Final = {
    name: next(entry for entry in fields if entry[0].dcgm == name)
    for name, fields in _NAMES.items()
    if len(fields) > 1
}
"""The field that DCGM itself means by a name which two fields share."""


def field_of(name: str, kind: str, *, typed: bool) -> tuple[Field, int] | None:
    """Return which field a metric is, and what makes the model's value of the page's.

    Args:
        name: of the metric.
        kind: its type on the page.
        typed: whether types tell two fields of one name apart, as on a page of podgpu's. On one of
            dcgm-exporter's the type is whatever its counters file says; the value is DCGM's.
    """
    if not typed and (rate := _RATES.get(name.upper())):
        return rate
    fields = _NAMES.get(name, ())
    return next((entry for entry in fields if entry[0].type == kind), next(iter(fields), None))
