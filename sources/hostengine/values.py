"""Values as DCGM hands them over."""

import math
from typing import Final

from sources.hostengine import structs
from sources.hostengine.structs import FieldValue

_BLANK64: Final = 0x7FFFFFFFFFFFFFF0
_BLANK32: Final = 0x7FFFFFF0
_BLANK_FLOAT: Final = float(1 << 47)
_BLANK_TEXT: Final = "<<<"
_BLANKS: Final = 16
_HALF: Final = 1 << 16


def number(found: FieldValue | None) -> int | float | None:
    """Return a value; None if it is blank, or no number."""
    if found is None:
        return None
    if found.type == structs.WHOLE:
        whole = found.value.i64
        blank = whole >= _BLANK64 or 0 <= whole - _BLANK32 < _BLANKS
        return None if blank else whole
    if found.type == structs.FRACTION:
        value = found.value.dbl
        return value if math.isfinite(value) and value < _BLANK_FLOAT else None
    return None


def text(found: FieldValue | None) -> str:
    """Return a text; empty if it is blank, or none."""
    if found is None or found.type != structs.TEXT:
        return ""
    told = found.value.str.decode("utf-8", "replace")
    return "" if told.startswith(_BLANK_TEXT) else told


def major(found: FieldValue | None) -> int:
    """Return the major compute capability; 0 if it isn't known.

    The headers say that it is the upper half of 64 bits, DCGM's own code that it is that of 32.
    """
    value = number(found)
    if value is None or value < 0:
        return 0
    whole = int(value)
    return whole >> 32 if whole >> 32 else whole // _HALF
