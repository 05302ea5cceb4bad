"""Parse a pod list into entries of podgpu and of others, and compose the next list."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pipeline.files import lenient_json
from sinks.podlist.entry_encoder import OURS, Entry, Names

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


_DIGITS: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Document:
    """Content of the file.

    Attributes:
        own_entries: unchanged text of the entries that podgpu wrote.
        other_entries: unchanged text of all other elements.
        is_complete: whether the list is complete. If not, its end is missing or invalid, and these
            are the entries before that.
        named: devices in others' entries, by container; numbers as text.
    """

    own_entries: tuple[bytes, ...] = ()
    other_entries: tuple[bytes, ...] = ()
    is_complete: bool = True
    named: dict[Names, set[str]] = field(default_factory=dict)


def parse_document(data: bytes) -> Document:
    """Parse the content of a file.

    Raises:
        NoListError: it is neither a list nor the beginning of one.
    """
    elements, is_complete = split(data)
    ours: list[bytes] = []
    others: list[bytes] = []
    named: dict[Names, set[str]] = {}
    for element in elements:
        entry = parse(element)
        if isinstance(entry, dict) and entry.get("writer") == OURS:
            ours.append(element)
            continue
        others.append(element)
        if isinstance(entry, dict):
            _add_named(entry, named)
    return Document(tuple(ours), tuple(others), is_complete, named)


def entries_beside(document: Document, entries: Iterable[Entry]) -> tuple[bytes, ...]:
    """Return the text of our entries that have to be in the file with the entries of others.

    If another's entry for the same container has all devices of an entry, the entry is left out: it
    adds nothing, and readers that ignore `writer` could count the container twice.
    """
    return tuple(
        entry.text
        for entry in entries
        if any(ids.isdisjoint(document.named.get(entry.names, ())) for ids in entry.devices)
    )


def compose(others: Iterable[bytes], ours: Iterable[bytes]) -> bytes:
    """Return the text of a list.

    The entries of others come first, so that an interrupted write in place damages only ours.
    """
    elements = [*others, *ours]
    return b"[\n" + b",\n".join(elements) + b"\n]\n" if elements else b"[]\n"


def _add_named(entry: dict[str, object], named: dict[Names, set[str]]) -> None:
    namespace, pod, container = (entry.get(key) for key in ("namespace", "name", "container"))
    ids = entry.get("gpu_list")
    if (
        isinstance(namespace, str)
        and isinstance(pod, str)
        and isinstance(container, str)
        and isinstance(ids, list)
    ):
        named.setdefault((namespace, pod, container), set()).update(map(_id, ids))


def _id(value: object) -> str:
    text = str(value) if isinstance(value, str | int) else ""
    return str(int(text)) if _DIGITS.fullmatch(text) else text
