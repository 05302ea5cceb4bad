"""Read claims from the content of a pod list."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from pipeline.component.claim_file_reader import FileClaims
from pipeline.files import UnreadableError, lenient_json
from pipeline.model import Claim, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from sources.podlist.entry_parser import EntryProblem, Integers, read_entry

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


class BadDocumentError(UnreadableError):
    """The file as a whole is not a pod list; the message says where and why."""


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
        return text, lenient_json.elements(text)
    except msgspec.ValidationError as error:
        kind = _GOT.search(str(error))
        problem = f"expected a list, found {_KINDS.get(kind[1] if kind else '', 'something else')}"
        offset = len(text) - len(text.lstrip())
    except msgspec.DecodeError as error:
        problem, offset = "ends too early", len(text)
        if found := _BYTE.search(str(error)):
            problem, offset = str(error)[: found.start()], int(found[1])
            # For this error, msgspec reports the byte after the first extra one.
            offset -= problem.endswith("trailing characters")
    except RecursionError:
        raise BadDocumentError(f"{path}: is nested too deeply") from None
    raise BadDocumentError(f"{path}:{place(text, offset)}: {problem}")


def place(text: bytes, offset: int) -> str:
    """Return line and column of a byte, for a message. The column counts characters from 1."""
    lines = text[:offset].split(b"\n")
    return f"{len(lines)}:{len(lines[-1].decode('utf-8', 'replace')) + 1}"


def value_offset(entry: bytes, key: str, item: int | None = None) -> int:
    """Return where the value of a key begins in an entry that can be parsed, as an offset in bytes.

    If the key occurs twice, the last one counts, as when the entry is parsed.

    Args:
        entry: the entry, a JSON object.
        key: a key of the object itself, not of a nested one.
        item: index of an element of the value, if the value is a list.

    Returns:
        The offset of the value or the element; 0 if the key does not exist.
    """
    text = entry.decode("utf-8", "surrogateescape")
    found, at = 0, _skip(text, 1)
    try:
        while text.startswith('"', at):
            name, at = _value(text, at)
            start = _skip(text, at, 1)
            at = _skip(text, _value(text, start)[1], 1)
            if name == key:
                found = start
        if found and item is not None:
            found = _skip(text, found + 1)
            for _ in range(item):
                found = _skip(text, _value(text, found)[1], 1)
    except RecursionError:  # msgspec and orjson accept deeper nesting
        return 0
    return len(text[:found].encode("utf-8", "surrogateescape"))


def _skip(text: str, at: int, marks: int = 0) -> int:
    """Return the offset after white space, then a number of other characters and white space."""
    while text[at : at + 1].isspace():
        at += 1
    return _skip(text, at + marks) if marks else at


# Numbers stay texts, because a number of thousands of digits cannot be converted.
_value = json.JSONDecoder(parse_int=str, parse_float=str, strict=False).raw_decode


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
        problems.append(EntryProblem("", None, f"can't be read: {error}"))
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
        within = value_offset(bytes(pieces[number]), wrong.key, wrong.item) if wrong.key else 0
        yield f"{path}:{place(text, offset + within)}: [{number}]{wrong.path}: {wrong.text}"
