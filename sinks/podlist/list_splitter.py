"""Takes the text of a list apart into its elements, letter for letter."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from pipeline.files import lenient_json

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
    text = data.removeprefix(lenient_json.BOM)
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
        return lenient_json.parse(element)
    except (ValueError, RecursionError):  # an integer of thousands of digits, say
        return None


def _elements(text: bytes) -> list[bytes]:
    try:
        return [bytes(element) for element in _split.decode(text)]
    except msgspec.DecodeError:
        masked = lenient_json.masked(text)
        if masked == text:
            raise
    end, elements = 0, []
    for element in map(bytes, _split.decode(masked)):
        begin = lenient_json.find(masked, element, end)
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
