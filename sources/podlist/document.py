"""Makes claims out of the bytes of a pod list."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import orjson

from pipeline.model import Claim, Evidence, Origin, PartialRef, RawDeviceId
from sources.podlist.entries import Integers, Wrong, read_entry
from sources.podlist.places import line_and_column, value_offset

_BOM = b"\xef\xbb\xbf"
_TOLD = 3
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


class BadDocumentError(Exception):
    """The file as a whole is no pod list; the text says where and why."""


@dataclass(frozen=True, slots=True)
class PodList:
    """What a file says.

    Attributes:
        claims: one for each container that holds a device, in the order of the file.
        complaints: what is wrong with entries and devices that were left out; the first few.
    """

    claims: tuple[Claim, ...]
    complaints: tuple[str, ...]


def read_pod_list(data: bytes, path: Path, integers: Integers) -> PodList:
    """Read a whole file.

    Args:
        data: the file's bytes.
        path: for messages and for the claims' origin.
        integers: what a number in `gpu_list` is.

    Raises:
        BadDocumentError: it isn't JSON, or isn't a list.
    """
    text = data.removeprefix(_BOM)
    pieces = _pieces(text, path)
    claims: dict[PartialRef, Claim] = {}
    merged: dict[PartialRef, dict[RawDeviceId, None]] = {}
    found: list[tuple[int, Wrong]] = []
    count = 0
    for number, piece in enumerate(pieces):
        try:
            entry = orjson.loads(memoryview(piece))
        except orjson.JSONDecodeError as error:
            raise _malformed(text, pieces, number, error, path) from None
        wrong: list[Wrong] = []
        read = read_entry(entry, integers, wrong)
        count += len(wrong)
        found.extend((number, one) for one in wrong[: _TOLD - len(found)])
        if read is None or not read[1]:
            continue
        subject, devices = read
        if subject in claims:
            held = merged.setdefault(subject, dict.fromkeys(claims[subject].devices))
            held.update(dict.fromkeys(devices))
        else:
            origin = Origin(Evidence.POD_LIST_FILE, f"{path} [{number}]")
            claims[subject] = Claim(subject, tuple(dict.fromkeys(devices)), None, None, origin)
    for subject, held in merged.items():
        claims[subject] = replace(claims[subject], devices=tuple(held))
    complaints = tuple(_complaints(text, pieces, found, path))
    if count > len(found):
        complaints += (f"{path}: {count - len(found)} more of this sort",)
    return PodList(tuple(claims.values()), complaints)


def _pieces(text: bytes, path: Path) -> list[msgspec.Raw]:
    if not text.strip():
        raise BadDocumentError(f"{path}: is empty; an empty list is written []")
    if text.strip() == b"null":  # how Go writes a list that was never made
        return []
    if text.count(b",") >= _MOST_VALUES:
        raise BadDocumentError(f"{path}: has more than {_MOST_VALUES} values")
    # One parse of all would hold the interpreter, and with it the event loop, for 80 ms at 10 MB.
    # Splitting the list takes a tenth of that, and between its entries others get their turn.
    try:
        return _split.decode(text)
    except msgspec.ValidationError as error:
        kind = _GOT.search(str(error))
        name = _KINDS.get(kind[1] if kind else "", "something else")
        start = len(text) - len(text.lstrip())
        raise BadDocumentError(
            f"{path}:{_place(text, start)}: expected a list, found {name}"
        ) from None
    except msgspec.DecodeError as error:
        problem, offset = "ends too early", len(text)
        if place := _BYTE.search(str(error)):
            problem, offset = str(error)[: place.start()], int(place[1])
            # Of these msgspec names the byte after the first.
            offset -= problem.endswith("trailing characters")
        raise BadDocumentError(f"{path}:{_place(text, offset)}: {problem}") from None
    except RecursionError:
        raise BadDocumentError(f"{path}: is nested too deeply") from None


def _malformed(
    text: bytes,
    pieces: list[msgspec.Raw],
    number: int,
    error: orjson.JSONDecodeError,
    path: Path,
) -> BadDocumentError:
    piece = bytes(pieces[number])
    within, problem = len(piece[: error.pos]), error.msg
    try:
        within = len(piece.decode()[: error.pos].encode())
    except UnicodeDecodeError as bad:
        within, problem = bad.start, "is not valid UTF-8"
    [offset] = _offsets(text, pieces, [number])
    return BadDocumentError(f"{path}:{_place(text, offset + within)}: [{number}]: {problem}")


def _complaints(
    text: bytes, pieces: list[msgspec.Raw], found: list[tuple[int, Wrong]], path: Path
) -> Iterator[str]:
    offsets = _offsets(text, pieces, [number for number, _ in found])
    for (number, wrong), offset in zip(found, offsets, strict=True):
        within = value_offset(bytes(pieces[number]), wrong.key, wrong.item) if wrong.present else 0
        yield f"{path}:{_place(text, offset + within)}: [{number}]{wrong.path}: {wrong.text}"


def _offsets(text: bytes, pieces: list[msgspec.Raw], numbers: list[int]) -> Iterator[int]:
    """Yield where pieces begin, for ascending numbers.

    Between two pieces stand a comma and white space only, with which no piece begins: the next
    occurrence of its bytes is the piece itself.
    """
    offset, done = 0, -1
    for number in numbers:
        while done < number:
            if done >= 0:
                offset += len(memoryview(pieces[done]))
            done += 1
            offset = text.index(bytes(pieces[done]), offset)
        yield offset


def _place(text: bytes, offset: int) -> str:
    line, column = line_and_column(text, offset)
    return f"{line}:{column}"
