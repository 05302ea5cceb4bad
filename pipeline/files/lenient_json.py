"""Reads elements of JSON lists that are not strictly valid.

Texts without importance may contain what strict JSON in UTF-8 does not allow: a half of a surrogate
pair, which Python writes for bytes that are not text; bytes that are not UTF-8; numbers out of the
range of floats.
"""

import json
import re
from typing import Final

import msgspec
import orjson

_split: Final = msgspec.json.Decoder(list[msgspec.Raw])

BOM: Final = b"\xef\xbb\xbf"

# Whole pairs and other escapes are matched too, so that the group only matches a half of a pair.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def elements(text: bytes) -> list[memoryview]:
    """Split a list into the texts of its elements.

    Raises:
        msgspec.DecodeError: it is not JSON, or (ValidationError) not a list.
        RecursionError: it is nested too deeply.
    """
    try:
        return [memoryview(piece) for piece in _split.decode(text)]
    except msgspec.DecodeError:
        # msgspec rejects halves of surrogate pairs. The escape of U+FFFD has the same length.
        masked = _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)
        if masked == text:
            raise
    whole, end, found = memoryview(text), 0, []
    for piece in _split.decode(masked):
        view = memoryview(piece)
        begin = find(masked, view, end)
        end = begin + len(view)
        found.append(whole[begin:end])
    return found


def parse(element: bytes | memoryview) -> object:
    """Parse an element; bytes that are not UTF-8 become surrogates, too large numbers infinity.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return orjson.loads(element)
    except orjson.JSONDecodeError:
        return json.loads(bytes(element).decode("utf-8", "surrogateescape"))


def find(text: bytes, piece: bytes | memoryview, begin: int) -> int:
    """Return the offset of an element, given the end of the previous one.

    Only a comma and white space are between two elements, and no element begins with these, so that
    the next occurrence of its bytes is the element.
    """
    return text.index(piece, begin)
