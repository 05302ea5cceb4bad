"""Lists of JSON that are written by others: read element by element, with patience.

What strict JSON in UTF-8 doesn't have may stand in a text where it is no matter: half a surrogate
pair, which Python writes for bytes that are no text, bytes that are no UTF-8, and numbers beyond
any float.
"""

import json
import re
from typing import Final

import orjson

BOM: Final = b"\xef\xbb\xbf"

# Whole pairs and other escapes are consumed, so that the group is half of a pair and nothing else.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def masked(text: bytes) -> bytes:
    """Return a text without halves of surrogate pairs, which msgspec takes for the end of all.

    What takes the place of one is as long, so that all offsets stay.
    """
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)


def parse(element: bytes | memoryview) -> object:
    """Return an element as Python has it: surrogates for what is no UTF-8, infinity for too much.

    Raises:
        ValueError: no parser takes it.
        RecursionError: it is nested too deeply for any.
    """
    try:
        return orjson.loads(element)
    except orjson.JSONDecodeError:
        return json.loads(bytes(element).decode("utf-8", "surrogateescape"))


def find(text: bytes, piece: bytes | memoryview, begin: int) -> int:
    """Return where a piece stands, given where the piece before it ends.

    Between two pieces stand a comma and white space only, with which no piece begins: the next
    occurrence of its bytes is the piece itself.
    """
    return text.index(piece, begin)
