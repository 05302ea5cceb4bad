"""JSON text that survives what a file system or a pod list may hold.

orjson takes neither lone surrogates (bytes that weren't UTF-8) nor integers beyond 64 bits (a year
9999, in nanoseconds). The standard library takes both. A line that needs it begins with a space,
which is nothing to any other reader of JSON.
"""

import json
from typing import Final, cast

import orjson

from pipeline.recording.errors import LineError

_SLOW: Final = b" "


def dump(value: object) -> bytes:
    """Return the value as one line of JSON, with its end."""
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return _SLOW + json.dumps(value, separators=(",", ":")).encode() + b"\n"


def load(line: bytes) -> object:
    """Return what a line of JSON holds.

    Raises:
        LineError: it is not JSON.
    """
    try:
        if line.startswith(_SLOW):
            return cast("object", json.loads(line))
        return cast("object", orjson.loads(line))
    except (ValueError, RecursionError) as error:
        raise LineError("is not JSON") from error
