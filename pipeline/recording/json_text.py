"""JSON lines that can contain all strings and numbers that occur in events.

orjson accepts neither lone surrogates (from bytes that are not UTF-8) nor integers over 64 bits
(such as the year 9999 in nanoseconds). The standard library accepts both, but is slower. Its lines
start with a space here, so that the reader uses it too; other JSON parsers ignore the space.
"""

import json
from typing import Final, cast

import orjson

from pipeline.recording.errors import LineError

_STDLIB_PREFIX: Final = b" "


def dump(value: object) -> bytes:
    """Return the value as one line of JSON, with a newline."""
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return _STDLIB_PREFIX + json.dumps(value, separators=(",", ":")).encode() + b"\n"


def load(line: bytes) -> object:
    """Return the value of a line of JSON.

    Raises:
        LineError: the line is not JSON.
    """
    try:
        if line.startswith(_STDLIB_PREFIX):
            return cast("object", json.loads(line))
        return cast("object", orjson.loads(line))
    except (ValueError, RecursionError) as error:
        raise LineError("is not JSON") from error
