"""Conversion of DCGM's values."""

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
    """Return a number; None if the value is blank or not a number."""
    if found is None:
        return None
    if found.type == structs.WHOLE:
        integer = found.value.i64
        blank = integer >= _BLANK64 or 0 <= integer - _BLANK32 < _BLANKS
        return None if blank else integer
    if found.type == structs.FRACTION:
        value = found.value.dbl
        return value if math.isfinite(value) and value < _BLANK_FLOAT else None
    return None


def text(found: FieldValue | None) -> str:
    """Return a text; empty if the value is blank or not a text."""
    if found is None or found.type != structs.TEXT:
        return ""
    decoded = found.value.str.decode("utf-8", "replace")
    return "" if decoded.startswith(_BLANK_TEXT) else decoded


def major(found: FieldValue | None) -> int:
    """Return the major compute capability; 0 if it is unknown.

    According to the headers it is the upper half of 64 bits, according to DCGM's code of 32 bits.
    """
    value = number(found)
    if value is None or value < 0:
        return 0
    integer = int(value)
    return integer >> 32 if integer >> 32 else integer // _HALF
