"""Parse values in the formats that Go's flag package accepts."""

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
_MAX_CHARACTERS: Final = 64


def value(type_: Type, text: str) -> Value:
    """Return the value of a text for an option of the given type.

    Raises:
        ValueError: the text is invalid for the type; the message says why.
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
    """Parse a switch as Go's ParseBool does; raise ValueError if it is invalid."""
    if text not in _TRUE | _FALSE:
        raise ValueError(f"{shown(text)} is neither true nor false")
    return text in _TRUE


def number(text: str) -> int:
    """Parse an integer as Go does (30000, 0x10, 1_000); raise ValueError if it is invalid."""
    octal = _OCTAL.fullmatch(text)
    try:
        if len(text) > _MAX_CHARACTERS or text.strip() != text:
            raise ValueError(text)  # noqa: TRY301 - one message for all errors
        found = int(f"{octal[1]}0o{octal[2]}" if octal else text, 0)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a whole number") from None
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{shown(text)} is out of range")
    return found


def milliseconds(text: str) -> int:
    """Parse a duration in Go's format, such as 1m30s, and return milliseconds.

    Raise ValueError if it is invalid, or not a positive whole number of milliseconds, as
    dcgm-exporter does.
    """
    parts = _PART.findall(text)
    if (
        not text
        or len(text) > _MAX_CHARACTERS
        or "".join(f"{n}{unit}" for n, unit in parts) != text
    ):
        raise ValueError(f"{shown(text)} is not a duration; write for example 30s or 1m30s")
    found = sum((Fraction(n) * _MILLISECONDS[unit] for n, unit in parts), Fraction(0))
    if found <= 0 or found.denominator != 1:
        raise ValueError(f"{shown(text)} is not a whole number of milliseconds, 1 or more")
    return int(found)
