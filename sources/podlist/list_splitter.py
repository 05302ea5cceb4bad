"""Takes a pod list apart into its entries, and reads each for itself."""

import re
from pathlib import Path

import msgspec

from pipeline.files import UnreadableError, lenient_json
from sources.podlist.json_position import line_and_column

# Memory in the face of a file full of commas: a parsed value takes up to a hundred bytes.
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
    """The file as a whole is no pod list; the text says where and why."""


class UnreadableEntryError(Exception):
    """No parser takes the entry."""


def split(data: bytes, path: Path) -> tuple[bytes, list[memoryview]]:
    """Return the text of a file without its mark, and its entries as they stand there.

    Raises:
        BadDocumentError: it isn't JSON, or isn't a list. What stands in the texts of an entry, and
            whether a number has room in a float, is no matter of the file.
    """
    text = data.removeprefix(lenient_json.BOM)
    if not text.strip():
        raise BadDocumentError(f"{path}: is empty; an empty list is written []")
    if text.strip() == b"null":  # how Go writes a list that was never made
        return text, []
    if text.count(b",") >= _MOST_VALUES:
        raise BadDocumentError(f"{path}: has more than {_MOST_VALUES} values")
    # One parse of all would hold the interpreter, and with it the event loop, for 80 ms at 10 MB.
    # Splitting the list takes a tenth of that, and between its entries others get their turn.
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
    """Split a text that may have half a surrogate pair somewhere, which msgspec refuses."""
    masked = lenient_json.masked(text)
    try:
        pieces = [memoryview(piece) for piece in _split.decode(masked)]
    except RecursionError:
        raise BadDocumentError(f"{path}: is nested too deeply") from None
    except msgspec.DecodeError as error:
        problem, offset = "ends too early", len(text)
        if found := _BYTE.search(str(error)):
            problem, offset = str(error)[: found.start()], int(found[1])
            # Of these msgspec names the byte after the first.
            offset -= problem.endswith("trailing characters")
        raise BadDocumentError(f"{path}:{place(text, offset)}: {problem}") from None
    whole, begin, original = memoryview(text), 0, []
    for piece in pieces:
        begin = lenient_json.find(masked, piece, begin)
        original.append(whole[begin : begin + len(piece)])
        begin += len(piece)
    return original


def parse(piece: memoryview) -> object:
    """Return an entry as Python has it.

    What strict JSON in UTF-8 doesn't have is read all the same, since it may stand where it is no
    matter: half a surrogate pair and bytes that are no UTF-8 as surrogates, numbers beyond any
    float as infinity.

    Raises:
        UnreadableEntryError: that didn't help.
    """
    try:
        return lenient_json.parse(piece)
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, say
        raise UnreadableEntryError(str(error)) from None


def place(text: bytes, offset: int) -> str:
    """Return line and column for a message."""
    line, column = line_and_column(text, offset)
    return f"{line}:{column}"
