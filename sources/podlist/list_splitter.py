"""Split a pod list into its entries, and parse each of them separately."""

import re
from pathlib import Path

import msgspec

from pipeline.files import UnreadableError, lenient_json
from sources.podlist.json_position import line_and_column

# Limits the memory for a file full of commas: a parsed value takes up to a hundred bytes.
_MOST_VALUES = 1_000_000
_BYTE = re.compile(r" \(byte ([0-9]+)\)")
_GOT = re.compile("got `([a-z]+)`")
_KINDS = {
    "object": "an object",
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
_split = msgspec.json.Decoder(list[msgspec.Raw])


class BadDocumentError(UnreadableError):
    """The file as a whole is not a pod list; the message says where and why."""


class UnreadableEntryError(Exception):
    """The entry cannot be parsed."""


def split(data: bytes, path: Path) -> tuple[bytes, list[memoryview]]:
    """Return the text of a file without its byte order mark, and the unparsed entries.

    Raises:
        BadDocumentError: it is not JSON or not a list. Lone surrogates within an entry and numbers
            that are too large for a float are accepted.
    """
    text = data.removeprefix(lenient_json.BOM)
    if not text.strip():
        raise BadDocumentError(f"{path}: is empty; an empty list is written []")
    if text.strip() == b"null":  # how Go encodes a nil slice
        return text, []
    if text.count(b",") >= _MOST_VALUES:
        raise BadDocumentError(f"{path}: has more than {_MOST_VALUES} values")
    # Parsing 10 MB in one call would block the event loop for 80 ms. Splitting takes a tenth of
    # that, and other threads can run between the entries.
    try:
        return text, [memoryview(piece) for piece in _split.decode(text)]
    except msgspec.ValidationError as error:
        kind = _GOT.search(str(error))
        name = _KINDS.get(kind[1] if kind else "", "something else")
        start = len(text) - len(text.lstrip())
        raise BadDocumentError(
            f"{path}:{place(text, start)}: expected a list, found {name}"
        ) from None
    except msgspec.DecodeError:
        return text, _split_masked(text, path)
    except RecursionError:
        raise BadDocumentError(f"{path}: is nested too deeply") from None


def _split_masked(text: bytes, path: Path) -> list[memoryview]:
    """Split a text that may contain lone surrogates, which msgspec refuses."""
    masked = lenient_json.masked(text)
    try:
        pieces = [memoryview(piece) for piece in _split.decode(masked)]
    except RecursionError:
        raise BadDocumentError(f"{path}: is nested too deeply") from None
    except msgspec.DecodeError as error:
        problem, offset = "ends too early", len(text)
        if found := _BYTE.search(str(error)):
            problem, offset = str(error)[: found.start()], int(found[1])
            # For this error, msgspec reports the byte after the first extra one.
            offset -= problem.endswith("trailing characters")
        raise BadDocumentError(f"{path}:{place(text, offset)}: {problem}") from None
    whole, begin, original = memoryview(text), 0, []
    for piece in pieces:
        begin = lenient_json.find(masked, piece, begin)
        original.append(whole[begin : begin + len(piece)])
        begin += len(piece)
    return original


def parse(piece: memoryview) -> object:
    """Parse an entry.

    Some invalid JSON is accepted, because it may be in a value that is not used: lone surrogates
    and bytes that are not UTF-8 become surrogates, and numbers too large for a float infinity.

    Raises:
        UnreadableEntryError: it still cannot be parsed.
    """
    try:
        return lenient_json.parse(piece)
    except (ValueError, RecursionError) as error:  # such as an integer of thousands of digits
        raise UnreadableEntryError(str(error)) from None


def place(text: bytes, offset: int) -> str:
    """Return line and column as text, for a message."""
    line, column = line_and_column(text, offset)
    return f"{line}:{column}"
