"""Takes the text of a list apart into its elements, letter for letter."""

import json
import re
from collections.abc import Iterator
from typing import Final

import msgspec
import orjson

_BOM: Final = b"\xef\xbb\xbf"
# Half a surrogate pair, which Python writes for bytes that are no text: msgspec takes it for the
# end of all. Whole pairs and other escapes are consumed, so that the group is a half and no more.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# A power cut may leave zeros where something was written last.
_BEGUN: Final = re.compile(rb"[\s\0]*(?:\[[\s\0]*(?:\{|\Z)|\Z)")
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)

_split: Final = msgspec.json.Decoder(list[msgspec.Raw])


class NoListError(Exception):
    """It isn't a list, nor the beginning of one."""


def split(data: bytes) -> tuple[list[bytes], bool]:
    """Return the elements of a list of objects, and whether the list is whole.

    Of one that is torn or cut off these are the objects before that; an empty file is such a list.

    Raises:
        NoListError: it is something else.
    """
    text = data.removeprefix(_BOM)
    if text.strip() == b"null":  # how Go writes a list that was never made
        return [], True
    try:
        return _elements(text), True
    except (msgspec.DecodeError, RecursionError):
        if not _BEGUN.match(text):
            raise NoListError from None
        return list(_objects(text)), False


def parse(element: bytes) -> object:
    """Return an element as Python has it, None if no parser takes it."""
    try:
        return orjson.loads(element)
    except orjson.JSONDecodeError:
        pass
    try:
        # Halves of surrogate pairs, no UTF-8, a number beyond any float: strange, but readable.
        return json.loads(element.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):  # an integer of thousands of digits, say
        return None


def _elements(text: bytes) -> list[bytes]:
    try:
        return [bytes(element) for element in _split.decode(text)]
    except msgspec.DecodeError:
        # What takes the place of half a pair is as long, so that all offsets stay.
        masked = _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)
        if masked == text:
            raise
    end, elements = 0, []
    for element in map(bytes, _split.decode(masked)):
        # Between two elements stand a comma and white space, with which none begins.
        begin = masked.index(element, end)
        end = begin + len(element)
        elements.append(text[begin:end])
    return elements


def _objects(text: bytes) -> Iterator[bytes]:
    """Yield the objects of a torn list, up to where it is torn."""
    depth = begin = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
            if depth == 2:
                begin = match.start()
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 1 and isinstance(parse(text[begin : match.end()]), dict):
                yield text[begin : match.end()]
            elif depth <= 1:
                return
        elif token == b'"':  # a text that never ends
            return
