"""Encode values as strict JSON."""

from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import orjson

from pipeline.model import NS

_MAX_TIME_NS: Final = 253_402_300_799 * NS
"""The end of the year 9999, since RFC 3339 has four digits for the year."""


def rfc3339(wall_ns: int) -> str:
    """Return a wall time in UTC with microseconds: `2026-11-28T00:00:00.123456Z`."""
    seconds, rest = divmod(min(max(wall_ns, 0), _MAX_TIME_NS), NS)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest // 1000:06d}Z"


def finite(value: float) -> bool:
    """Whether a value is finite and fits into a double, so that JSON readers can hold it."""
    try:
        return isfinite(value)
    except OverflowError:  # an integer that does not fit into a double
        return False


def json_line(line: dict[str, Any]) -> bytes:
    """Return the object, with any texts and integers, as a line of JSON with a newline."""
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return orjson.dumps(_replaceable(line), option=orjson.OPT_APPEND_NEWLINE)


def _replaceable(value: Any) -> Any:
    """Replace values that orjson rejects: lone surrogates, and integers of more than 64 bits.

    A lone surrogate occurs if bytes that are not UTF-8 were decoded as a name.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replaceable(key): _replaceable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaceable(item) for item in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return orjson.Fragment(str(value))
    return value
