"""An independent reader of a queue's folder, to check what the queue itself reports.

It shares no code with `pipeline/delivery/queue/disk`. It is written from the description of the
format in `record_format.py` and `cursor.py` there, reads whole files, and accepts no corruption
but an unfinished record at the end.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.delivery.contract import Totals

_SLOT = 8192
_NO_CURSOR = {"position": 0, "end": 0, "acked": 0, "rejected": {}, "dropped": {}, "generation": 0}


@dataclass(frozen=True, slots=True)
class FolderContent:
    """The content of a folder.

    Attributes:
        totals: counts of all points, from the cursor and the records.
        bytes: size of all segments.
        waiting: number and points of each record that is not settled.
    """

    totals: Totals
    bytes: int
    waiting: list[tuple[int, int]]


def read_folder(path: Path) -> FolderContent:
    """Read a folder without changing it."""
    cursor, end, waiting = _cursor(path / "cursor"), 0, []
    segments = sorted(path.glob("*.seg"))
    for segment in segments:
        for number, points, position in _records(segment.read_bytes(), int(segment.stem)):
            end = position + points
            if position >= cursor["position"]:
                waiting.append((number, points))
    queued = max(end, cursor["end"], cursor["position"]) - cursor["position"]
    done = sum((cursor["acked"], *cursor["rejected"].values(), *cursor["dropped"].values()))
    totals = Totals(done + queued, cursor["acked"], cursor["rejected"], cursor["dropped"])
    return FolderContent(totals, sum(one.stat().st_size for one in segments), waiting)


def _cursor(path: Path) -> dict:  # type: ignore[type-arg]
    data = path.read_bytes() if path.exists() else b""
    found = [_NO_CURSOR]
    for start in range(0, len(data), _SLOT):
        magic, length, crc = struct.unpack_from("<4sII", data, start)
        body = data[start + 12 : start + 12 + length]
        if magic == b"pgc1" and zlib.crc32(body) == crc:
            found.append(json.loads(body))
    return max(found, key=lambda state: state["generation"])


def _records(data: bytes, segment: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, points and position of each record of a segment."""
    magic, version, number = struct.unpack_from("<8sIQ", data)
    assert (magic, version, number) == (b"podgpu\xf5q", 1, segment)
    assert struct.unpack_from("<I", data, 36)[0] == zlib.crc32(data[:36])
    at = 40
    while at + 48 <= len(data):
        header = data[at : at + 44]
        marker, packed, points, record, position, _, crc = struct.unpack("<4sIQQQqI", header)
        valid = struct.unpack_from("<I", data, at + 44)[0] == zlib.crc32(header, segment)
        body = data[at + 48 : at + 48 + (packed & 0x3FFFFFFF)]
        if marker != b"\xf5rec" or not valid or zlib.crc32(body) != crc:
            return
        yield record, points, position
        at += 48 + len(body)
