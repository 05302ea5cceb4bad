"""Parse a pod list into entries of podgpu and of others, and compose the next list."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sinks.podlist.list_entries import OURS, Entry, Names
from sinks.podlist.list_splitter import parse, split

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
