"""Split the text of a list into the unchanged texts of its elements."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from pipeline.files import lenient_json

# After a power failure, the end of a file may consist of zero bytes.
_LIST_START: Final = re.compile(rb"[\s\0]*(?:\[[\s\0]*(?:\{|\Z)|\Z)")
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)


class NoListError(Exception):
    """The text is neither a list nor the beginning of one."""


def split(data: bytes) -> tuple[list[bytes], bool]:
    """Return the elements of a list of objects, and whether the list is complete.

    For an incomplete or damaged list, return the objects before the damage. An empty file is an
    incomplete list.

    Raises:
        NoListError: it is something else.
    """
    text = data.removeprefix(lenient_json.BOM)
    if text.strip() == b"null":  # how Go encodes a nil slice
        return [], True
    try:
        return [bytes(element) for element in lenient_json.elements(text)], True
    except (msgspec.DecodeError, RecursionError):
        if not _LIST_START.match(text):
            raise NoListError from None
        return list(_objects(text)), False


def parse(element: bytes) -> object:
    """Parse an element; return None if it is invalid."""
    try:
        return lenient_json.parse(element)
    except (ValueError, RecursionError):  # such as an integer of thousands of digits
        return None


def _objects(text: bytes) -> Iterator[bytes]:
    """Yield the objects of a damaged list, up to the damage."""
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
        elif token == b'"':  # an unterminated string
            return
