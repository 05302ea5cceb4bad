"""Parse a pod list into entries of podgpu and of others, and compose the next list."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pipeline.files.lenient_json import ListError, elements, text_of
from sinks.podlist.entry_encoder import OURS, Entry, Names

# After a power failure, the end of a file may consist of zero bytes.
_LIST_START: Final = re.compile(r"[\s\0]*(?:\[[\s\0]*(?:\{|\Z)|\Z)")
_DIGITS: Final = re.compile(r"[0-9]{1,9}")


class NoListError(Exception):
    """The text is neither a list nor the beginning of one."""


@dataclass(frozen=True, slots=True)
class SharedList:
    """Content of a pod list file.

    Attributes:
        own_entries: unchanged text of the entries that podgpu wrote.
        other_entries: unchanged text of all other elements.
        is_complete: whether the list is complete. If not, its end is missing or invalid, and the
            entries are those before that place.
        named: ids of devices in entries of other programs, by container. Numbers are without
            leading zeros.
    """

    own_entries: tuple[bytes, ...] = ()
    other_entries: tuple[bytes, ...] = ()
    is_complete: bool = True
    named: dict[Names, set[str]] = field(default_factory=dict)


def parse_document(data: bytes) -> SharedList:
    """Parse the content of a file. An empty file is an incomplete list.

    Raises:
        NoListError: the text is neither a list nor the beginning of one.
    """
    text = text_of(data)
    ours: list[bytes] = []
    others: list[bytes] = []
    named: dict[Names, set[str]] = {}
    is_complete = True
    try:
        if text.strip() != "null":  # how Go encodes a nil slice
            for begin, end, entry in elements(text):
                element = text[begin:end].encode("utf-8", "surrogateescape")
                if isinstance(entry, dict) and entry.get("writer") == OURS:
                    ours.append(element)
                    continue
                others.append(element)
                match entry:
                    case {
                        "namespace": str(namespace),
                        "name": str(pod),
                        "container": str(container),
                        "gpu_list": list(ids),
                    }:
                        named.setdefault((namespace, pod, container), set()).update(map(_id, ids))
                    case _:
                        pass
    except (ListError, RecursionError):
        if not _LIST_START.match(text):
            raise NoListError from None
        is_complete = False
    return SharedList(tuple(ours), tuple(others), is_complete, named)


def entries_beside(document: SharedList, entries: Iterable[Entry]) -> tuple[bytes, ...]:
    """Return the texts of podgpu's entries that have to be in the file.

    An entry is left out if entries of other programs for the same container have all its devices.
    It would add nothing, and readers that ignore `writer` could count the container twice.
    """
    return tuple(
        entry.text
        for entry in entries
        if any(ids.isdisjoint(document.named.get(entry.names, ())) for ids in entry.devices)
    )


def compose(others: Iterable[bytes], ours: Iterable[bytes]) -> bytes:
    """Return the text of a list.

    The entries of others come first, so that an interrupted write in place damages only podgpu's.
    """
    elements = [*others, *ours]
    return b"[\n" + b",\n".join(elements) + b"\n]\n" if elements else b"[]\n"


def _id(value: object) -> str:
    text = str(value) if isinstance(value, str | int) else ""
    return str(int(text)) if _DIGITS.fullmatch(text) else text
