"""The forms of values that Go's flag package takes."""

import re
from fractions import Fraction
from typing import Final

from config.message_text import shown
from podgpu.cli.dcgm_exporter.option import Type, Value

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_OCTAL: Final = re.compile(r"([-+]?)0_?([0-7_]+)")
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MILLISECONDS: Final = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1_000),
    "µs": Fraction(1, 1_000),
    "μs": Fraction(1, 1_000),
    "ms": Fraction(1),
    "s": Fraction(1_000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_LONGEST: Final = 64


def value(type_: Type, text: str) -> Value:
    """Return what a text means to an option of that type.

    Raises:
        ValueError: it means nothing to it; the error's text says why.
    """
    match type_:
        case Type.TEXT:
            return text
        case Type.NUMBER:
            return number(text)
        case Type.SWITCH:
            return switch(text)
        case Type.LIST:
            return tuple(part.strip() for part in text.split(","))


def switch(text: str) -> bool:
    """Return what Go's ParseBool makes of it; ValueError if that is nothing."""
    if text not in _TRUE | _FALSE:
        raise ValueError(f"{shown(text)} is neither true nor false")
    return text in _TRUE


def number(text: str) -> int:
    """Return a whole number, written as in Go: 30000, 0x10, 1_000; ValueError if it is none."""
    octal = _OCTAL.fullmatch(text)
    try:
        if len(text) > _LONGEST or text.strip() != text:
            raise ValueError(text)  # noqa: TRY301 - one message for all
        found = int(f"{octal[1]}0o{octal[2]}" if octal else text, 0)
    except ValueError:
        raise ValueError(f"{shown(text)} is no whole number") from None
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{shown(text)} is out of range")
    return found


def milliseconds(text: str) -> int:
    """Return a duration as Go writes them, 1m30s, in milliseconds; ValueError if it is none.

    It has to be a whole number of them and more than none, as dcgm-exporter wants it.
    """
    parts = _PART.findall(text)
    if not text or len(text) > _LONGEST or "".join(f"{n}{unit}" for n, unit in parts) != text:
        raise ValueError(f"{shown(text)} is no duration; write for example 30s or 1m30s")
    found = sum((Fraction(n) * _MILLISECONDS[unit] for n, unit in parts), Fraction(0))
    if found <= 0 or found.denominator != 1:
        raise ValueError(f"{shown(text)} is no whole number of milliseconds, one or more")
    return int(found)
