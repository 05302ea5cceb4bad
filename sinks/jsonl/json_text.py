"""Values as strict JSON has them."""

from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import orjson

from pipeline.model import NS

_LAST: Final = 253_402_300_799 * NS
"""The end of the year 9999: later times can't be written with four digits."""


def rfc3339(wall_ns: int) -> str:
    """Return a wall time in UTC, to the microsecond: `2026-11-28T00:00:00.123456Z`."""
    seconds, rest = divmod(min(max(wall_ns, 0), _LAST), NS)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest // 1000:06d}Z"


def finite(value: float) -> bool:
    """Whether JSON has a number for the value that readers can hold."""
    try:
        return isfinite(value)
    except OverflowError:  # an integer that no double can hold
        return False


def dump(value: object) -> bytes:
    """Return the value as JSON, whatever texts and integers it holds."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_replaceable(value))


def json_line(line: dict[str, Any]) -> bytes:
    """Return the object as a line of JSON, with its end."""
    return dump(line) + b"\n"


def _replaceable(value: Any) -> Any:
    """Replace what orjson refuses: lone surrogates, and integers of more than 64 bits.

    Half a surrogate pair gets into a text where bytes that aren't UTF-8 were taken for a name.
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
