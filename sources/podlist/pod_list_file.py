"""Read claims from the content of a pod list."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pipeline.component.claim_file_reader import FileClaims
from pipeline.files import lenient_json
from pipeline.model import Claim, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from sources.podlist.list_entries import EntryProblem, Integers, read_entry
from sources.podlist.list_splitter import BadDocumentError, place, split, value_offset

_MAX_REPORTED = 3


def read_pod_list(data: bytes, path: Path, integers: Integers) -> FileClaims:
    """Return one claim for each container that holds a device, in the order of the file.

    Args:
        data: content of the file.
        path: path of the file, for messages and for the origin of the claims.
        integers: meaning of numbers in `gpu_list`.

    Raises:
        BadDocumentError: it is not JSON, not a list, or lists more devices than one node can have.
    """
    text, pieces = split(data, path)
    claims: dict[PartialRef, Claim] = {}
    merged: dict[PartialRef, dict[RawDeviceId, None]] = {}
    reported: list[tuple[int, EntryProblem]] = []
    count = held = 0
    for number, piece in enumerate(pieces):
        problems: list[EntryProblem] = []
        read = _read(piece, integers, problems)
        count += len(problems)
        reported.extend((number, problem) for problem in problems[: _MAX_REPORTED - len(reported)])
        if read is None or not read[1]:
            continue
        subject, devices = read
        if subject in claims:
            merged_devices = merged.setdefault(subject, dict.fromkeys(claims[subject].devices))
            held -= len(merged_devices)
            merged_devices.update(dict.fromkeys(devices))
            held += len(merged_devices)
        else:
            origin = Origin(Evidence.POD_LIST_FILE, f"{path} [{number}]")
            distinct = tuple(dict.fromkeys(devices))
            claims[subject] = Claim(subject, distinct, None, None, origin)
            held += len(distinct)
        if held > MAX_CLAIMED_DEVICES:
            raise BadDocumentError(
                f"{path}: lists more than {MAX_CLAIMED_DEVICES} devices, with a shared one counted "
                "for each of its containers; one node cannot have so many"
            )
    for subject, merged_devices in merged.items():
        claims[subject] = replace(claims[subject], devices=tuple(merged_devices))
    complaints = tuple(_complaints(text, pieces, reported, path))
    if count > len(reported):
        complaints += (f"{path}: {count - len(reported)} more problems of this kind",)
    return FileClaims(tuple(claims.values()), complaints)


def _read(
    piece: memoryview, integers: Integers, problems: list[EntryProblem]
) -> tuple[PartialRef, list[RawDeviceId]] | None:
    try:
        entry = lenient_json.parse(piece)
    except (ValueError, RecursionError) as error:  # such as an integer of thousands of digits
        problems.append(EntryProblem("", None, False, f"can't be read: {error}"))
        return None
    return read_entry(entry, integers, problems)


def _complaints(
    text: bytes, pieces: list[memoryview], reported: list[tuple[int, EntryProblem]], path: Path
) -> Iterator[str]:
    offset, done = 0, 0
    for number, wrong in reported:
        for piece in pieces[done:number]:
            offset = lenient_json.find(text, piece, offset) + len(piece)
        done, offset = number, lenient_json.find(text, pieces[number], offset)
        within = value_offset(bytes(pieces[number]), wrong.key, wrong.item) if wrong.present else 0
        yield f"{path}:{place(text, offset + within)}: [{number}]{wrong.path}: {wrong.text}"
