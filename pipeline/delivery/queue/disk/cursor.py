"""The cursor: up to where records are done with, and what became of all points."""

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import Annotated, Final

import msgspec

from pipeline.delivery.queue.disk.record_format import MAX_NUMBER

_SLOT: Final = 8 << 10
_SLOTS: Final = 4
_HEAD: Final = struct.Struct("<4sII")  # magic, length, CRC
_MAGIC: Final = b"pgc1"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class CursorState(msgspec.Struct, frozen=True, kw_only=True):
    """What the cursor says.

    Attributes:
        kind: a word for what the records are; empty if nobody has said so.
        generation: grows with each.
        segment: number of the segment in which the next record stands.
        place: where in it, in bytes.
        position: points before that record.
        record: its number.
        end: points before the end of the queue; there may be more by now.
        next_record: number of the record after the last one; it may be higher by now.
        acked: points that the receiver took.
        rejected: points that it refused, by reason.
        dropped: points that were given up, by reason.
    """

    kind: str = ""
    generation: _Number = 0
    segment: _Number = 0
    place: _Number = 0
    position: _Number = 0
    record: _Number = 0
    end: _Number = 0
    next_record: _Number = 0
    acked: _Number = 0
    rejected: dict[str, _Number] = {}
    dropped: dict[str, _Number] = {}


def read_cursor(path: Path) -> tuple[CursorState | None, bool]:
    """Return the newest mark of a file, and whether one was broken.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        marks, broken = _unpack_all(file.read(_SLOT * _SLOTS))
    return max(marks, key=_generation), broken


def _unpack_all(data: bytes) -> tuple[list[CursorState | None], bool]:
    slots = [data[start : start + _SLOT] for start in range(0, _SLOT * _SLOTS, _SLOT)]
    marks = [_unpack(slot) for slot in slots]
    broken = any(mark is None and any(slot) for mark, slot in zip(marks, slots, strict=True))
    return marks, broken


def _generation(mark: CursorState | None) -> int:
    return mark.generation if mark else -1


def _unpack(slot: bytes) -> CursorState | None:
    if len(slot) < _HEAD.size:
        return None
    magic, length, crc = _HEAD.unpack_from(slot)
    body = slot[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or len(body) != length or zlib.crc32(body) != crc:
        return None
    try:
        return msgspec.json.decode(body, type=CursorState)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class CursorFile:
    """The file of the cursor, which always holds a whole one.

    Two slots are written in turn, so that a write that was torn leaves the one before. What is
    flushed goes to another two, of which one is on the disk at any time: a power cut may tear
    everything that was written since.

    Args:
        path: where it is, or will be.

    Raises:
        OSError: it can't be opened or made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, _FLAGS, 0o600)
        try:
            if os.fstat(self._fd).st_size < _SLOT * _SLOTS:
                # While there is room: later there may be none, and what is done with must be noted.
                present = os.pread(self._fd, _SLOT * _SLOTS, 0)
                os.pwrite(self._fd, present.ljust(_SLOT * _SLOTS, b"\0"), 0)
            marks, self.broken = _unpack_all(os.pread(self._fd, _SLOT * _SLOTS, 0))
        except OSError:
            self.close()
            raise
        self.mark = max(marks, key=_generation)
        self._generation = max(_generation(self.mark), 0)
        self._flushed = int(_generation(marks[2]) > _generation(marks[3]))
        self.dirty = False

    def exists(self) -> bool:
        """Whether the file at the path is still this one."""
        return same_file(self._fd, self._path)

    def save(self, mark: CursorState) -> None:
        """Write a mark.

        Raises:
            OSError: it can't be written.
        """
        self._write(mark, self._generation % 2)
        self.dirty = True

    def save_to_flush(self, mark: CursorState) -> None:
        """Write a mark that is to be flushed next, and tell it then to `mark_flushed`.

        Raises:
            OSError: it can't be written.
        """
        self._write(mark, 2 + self._flushed % 2)
        self.dirty = True

    def mark_flushed(self) -> None:
        """Take it that the last mark is on the disk."""
        self._flushed += 1
        self.dirty = False

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Give the file back."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def _write(self, mark: CursorState, slot: int) -> None:
        self._generation += 1
        body = msgspec.json.encode(msgspec.structs.replace(mark, generation=self._generation))
        data = _HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body
        os.pwrite(self._fd, data, slot * _SLOT)


def same_file(fd: int, path: Path) -> bool:
    """Whether a path leads to an open file. What can't be looked at now is taken to be there."""
    try:
        there = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    mine = os.fstat(fd)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
