"""Read claims from the content of a pod list."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.component.claim_file_reader import FileClaims
from pipeline.files.bounded_read import UnreadableError
from pipeline.files.lenient_json import ListError, decode, elements, skip_space, text_of
from pipeline.model import Claim, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from sources.podlist.entry_parser import EntryProblem, Integers, read_entry

# Limits the memory for a file full of commas: a parsed value takes up to a hundred bytes.
_MOST_VALUES = 1_000_000
_MAX_REPORTED = 3


class BadDocumentError(UnreadableError):
    """The file as a whole is not a pod list; the text of the error says where and why."""


def read_pod_list(data: bytes, path: Path, integers: Integers) -> FileClaims:
    """Return one claim for each container that holds a device, in the order of the file.

    Args:
        data: content of the file.
        path: path of the file, for messages and for the origin of the claims.
        integers: meaning of numbers in `gpu_list`.

    Raises:
        BadDocumentError: the content is not JSON, is not a list, or is larger than that of any
            node. Halves of surrogate pairs and numbers that are too large for a float are accepted.
    """
    text = text_of(data)
    origins: dict[PartialRef, Origin] = {}
    held: dict[PartialRef, dict[RawDeviceId, None]] = {}
    complaints: list[str] = []
    count = total = 0
    for number, (begin, entry) in enumerate(_entries(text, path)):
        problems: list[EntryProblem] = []
        read = read_entry(entry, integers, problems)
        count += len(problems)
        for wrong in problems[: _MAX_REPORTED - len(complaints)]:
            offset = value_offset(text, begin, wrong.key, wrong.item)
            complaints.append(f"{path}:{place(text, offset)}: [{number}]{wrong.path}: {wrong.text}")
        if read is None or not read[1]:
            continue
        subject, devices = read
        origins.setdefault(subject, Origin(Evidence.POD_LIST_FILE, f"{path} [{number}]"))
        merged = held.setdefault(subject, {})
        total -= len(merged)
        merged.update(dict.fromkeys(devices))
        total += len(merged)
        if total > MAX_CLAIMED_DEVICES:
            raise BadDocumentError(
                f"{path}: lists more than {MAX_CLAIMED_DEVICES} devices, with a shared one counted "
                "for each of its containers; one node cannot have so many"
            )
    if count > len(complaints):
        complaints.append(f"{path}: {count - len(complaints)} more problems of this kind")
    claims = (Claim(who, tuple(ids), None, None, origins[who]) for who, ids in held.items())
    return FileClaims(tuple(claims), tuple(complaints))


def _entries(text: str, path: Path) -> Iterator[tuple[int, object]]:
    """Yield each entry with its offset. Other threads can run between two entries."""
    if not text.strip():
        raise BadDocumentError(f"{path}: is empty; an empty list is written []")
    if text.strip() == "null":  # how Go encodes a nil slice
        return
    if text.count(",") >= _MOST_VALUES:
        raise BadDocumentError(f"{path}: has more than {_MOST_VALUES} values")
    try:
        for begin, _, entry in elements(text):
            yield begin, entry
    except ListError as error:
        raise BadDocumentError(f"{path}:{place(text, error.offset)}: {error}") from None
    except RecursionError:
        raise BadDocumentError(f"{path}: is nested too deeply") from None


def place(text: str, offset: int) -> str:
    """Return line and column of a character as text for a message, both counted from 1."""
    lines = text[:offset].split("\n")
    return f"{len(lines)}:{len(lines[-1]) + 1}"


def value_offset(text: str, begin: int, key: str, item: int | None = None) -> int:
    """Return the offset at which the value of a key begins. The entry must be valid JSON.

    If the key occurs twice, the last one is used, as in the parsed entry.

    Args:
        text: the text of the file.
        begin: offset of the entry.
        key: key of the entry itself, not of a nested object; empty for the whole entry.
        item: index of an element if the value is a list; None for the whole value.

    Returns:
        The offset of the value or the element; that of the entry if the key does not exist.
    """
    found, at = begin, skip_space(text, begin + 1)
    while key and text.startswith('"', at):
        name, at = decode(text, at)
        start = _after_mark(text, at)
        at = _after_mark(text, decode(text, start)[1])
        if name == key:
            found = start
    if found != begin and item is not None:
        found = skip_space(text, found + 1)
        for _ in range(item):
            found = _after_mark(text, decode(text, found)[1])
    return found


def _after_mark(text: str, offset: int) -> int:
    """Return the offset after a colon or comma and the white space on both sides of it."""
    return skip_space(text, skip_space(text, offset) + 1)
