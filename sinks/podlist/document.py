"""A pod list: what in it is ours, what is others', and what the next one looks like."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sinks.podlist.list_entries import OURS, Entry, Names
from sinks.podlist.list_splitter import parse, split

_DIGITS: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Document:
    """What stands in the file.

    Attributes:
        own_entries: entries that podgpu wrote, letter for letter.
        other_entries: all other elements, letter for letter.
        is_complete: it is a list. Else its end is missing or torn, and these are the entries before
            that.
        named: the devices that others' entries name, by container; numbers as text.
    """

    own_entries: tuple[bytes, ...] = ()
    other_entries: tuple[bytes, ...] = ()
    is_complete: bool = True
    named: dict[Names, set[str]] = field(default_factory=dict)


def parse_document(data: bytes) -> Document:
    """Take a file apart.

    Raises:
        NoListError: it isn't a list, nor the beginning of one.
    """
    elements, whole = split(data)
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
            _note(entry, named)
    return Document(tuple(ours), tuple(others), whole, named)


def entries_beside(document: Document, entries: Iterable[Entry]) -> tuple[bytes, ...]:
    """Return our entries as they have to stand beside others'.

    Where another's entry names all devices of one of ours, for the same container, ours adds
    nothing, and a reader that doesn't know of writers might count the container twice.
    """
    return tuple(
        entry.text
        for entry in entries
        if any(ids.isdisjoint(document.named.get(entry.names, ())) for ids in entry.devices)
    )


def compose(others: Iterable[bytes], ours: Iterable[bytes]) -> bytes:
    """Return the text of a list.

    Others' entries come first: what a write in place that was cut off has torn is ours.
    """
    elements = [*others, *ours]
    return b"[\n" + b",\n".join(elements) + b"\n]\n" if elements else b"[]\n"


def _note(entry: dict[str, object], named: dict[Names, set[str]]) -> None:
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
