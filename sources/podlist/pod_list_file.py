"""Makes claims out of the bytes of a pod list."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pipeline.component.claim_file_reader import FileClaims
from pipeline.files import lenient_json
from pipeline.model import Claim, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from sources.podlist.json_position import value_offset
from sources.podlist.list_entries import EntryProblem, Integers, read_entry
from sources.podlist.list_splitter import (
    BadDocumentError,
    UnreadableEntryError,
    parse,
    place,
    split,
)

_MAX_REPORTED = 3


def read_pod_list(data: bytes, path: Path, integers: Integers) -> FileClaims:
    """Return one claim for each container that holds a device, in the order of the file.

    Args:
        data: the file's bytes.
        path: for messages and for the claims' origin.
        integers: what a number in `gpu_list` is.

    Raises:
        BadDocumentError: it isn't JSON, isn't a list, or names more devices than any node has
            containers and devices for.
    """
    text, pieces = split(data, path)
    claims: dict[PartialRef, Claim] = {}
    merged: dict[PartialRef, dict[RawDeviceId, None]] = {}
    found: list[tuple[int, EntryProblem]] = []
    count = held = 0
    for number, piece in enumerate(pieces):
        wrong: list[EntryProblem] = []
        read = _read(piece, integers, wrong)
        count += len(wrong)
        found.extend((number, one) for one in wrong[: _MAX_REPORTED - len(found)])
        if read is None or not read[1]:
            continue
        subject, devices = read
        if subject in claims:
            all_ = merged.setdefault(subject, dict.fromkeys(claims[subject].devices))
            held -= len(all_)
            all_.update(dict.fromkeys(devices))
            held += len(all_)
        else:
            origin = Origin(Evidence.POD_LIST_FILE, f"{path} [{number}]")
            distinct = tuple(dict.fromkeys(devices))
            claims[subject] = Claim(subject, distinct, None, None, origin)
            held += len(distinct)
        if held > MAX_CLAIMED_DEVICES:
            raise BadDocumentError(
                f"{path}: its containers hold more than {MAX_CLAIMED_DEVICES} devices, a shared "
                "one counted for each of them; no node has so many, so this can't be the list of "
                "one node"
            )
    for subject, all_ in merged.items():
        claims[subject] = replace(claims[subject], devices=tuple(all_))
    complaints = tuple(_complaints(text, pieces, found, path))
    if count > len(found):
        complaints += (f"{path}: {count - len(found)} more of this sort",)
    return FileClaims(tuple(claims.values()), complaints)


def _read(
    piece: memoryview, integers: Integers, wrong: list[EntryProblem]
) -> tuple[PartialRef, list[RawDeviceId]] | None:
    try:
        entry = parse(piece)
    except UnreadableEntryError as error:
        wrong.append(EntryProblem("", None, False, f"can't be read: {error}"))
        return None
    return read_entry(entry, integers, wrong)


def _complaints(
    text: bytes, pieces: list[memoryview], found: list[tuple[int, EntryProblem]], path: Path
) -> Iterator[str]:
    offsets = _offsets(text, pieces, [number for number, _ in found])
    for (number, wrong), offset in zip(found, offsets, strict=True):
        within = value_offset(bytes(pieces[number]), wrong.key, wrong.item) if wrong.present else 0
        yield f"{path}:{place(text, offset + within)}: [{number}]{wrong.path}: {wrong.text}"


def _offsets(text: bytes, pieces: list[memoryview], numbers: list[int]) -> Iterator[int]:
    """Yield where pieces begin, for ascending numbers."""
    offset, done = 0, -1
    for number in numbers:
        while done < number:
            if done >= 0:
                offset += len(pieces[done])
            done += 1
            offset = lenient_json.find(text, pieces[done], offset)
        yield offset
