"""The cursor file: up to where records are settled, and the counts of all points."""

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
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class CursorState(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of the cursor.

    Attributes:
        kind: kind of the records; empty if not known.
        generation: number of the write; each write has a higher one.
        segment: number of the segment that contains the next record.
        place: byte offset of the next record in the segment.
        position: number of all points before the next record.
        record: number of the next record.
        end: number of all points before the end of the queue, when the state was written.
        next_record: number for the next new record, when the state was written.
        acked: number of points that the receiver accepted.
        rejected: number of points that the receiver rejected, by reason.
        dropped: number of points that were dropped, by reason.
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
    """The cursor file. After the first write, an interrupted write never leaves it without a state.

    Two slots are written in turn, so that an incomplete write leaves the previous state. States
    that are to be flushed are written to two other slots in turn: a power failure may corrupt all
    that was written since the last flush, but not the state of that flush.

    Args:
        path: path of the file; it is created if missing.

    Raises:
        OSError: the file can't be opened or created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, _OPEN_FLAGS, 0o600)
        try:
            if os.fstat(self._fd).st_size < _SLOT * _SLOTS:
                # Reserve the space now: the cursor must be writable when the disk is full later.
                present = os.pread(self._fd, _SLOT * _SLOTS, 0)
                os.pwrite(self._fd, present.ljust(_SLOT * _SLOTS, b"\0"), 0)
            data = os.pread(self._fd, _SLOT * _SLOTS, 0)
        except OSError:
            self.close()
            raise
        slots = [data[start : start + _SLOT] for start in range(0, _SLOT * _SLOTS, _SLOT)]
        states = [_unpack(slot) for slot in slots]
        self.broken = any(
            state is None and any(slot) for state, slot in zip(states, slots, strict=True)
        )
        generations = [state.generation if state else -1 for state in states]
        self.state = states[generations.index(max(generations))]
        self._generation = max(*generations, 0)
        self._flushed = int(generations[2] > generations[3])
        self.dirty = False

    def exists(self) -> bool:
        """Return whether the path still leads to this file."""
        return same_file(self._fd, self._path)

    def save(self, state: CursorState, *, to_flush: bool = False) -> None:
        """Write a state.

        Args:
            state: the state.
            to_flush: whether the caller flushes the file after this; `mark_flushed` confirms it.

        Raises:
            OSError: the state can't be written.
        """
        slot = 2 + self._flushed % 2 if to_flush else self._generation % 2
        self._generation += 1
        body = msgspec.json.encode(msgspec.structs.replace(state, generation=self._generation))
        data = _HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body
        os.pwrite(self._fd, data, slot * _SLOT)
        self.dirty = True

    def mark_flushed(self) -> None:
        """Note that the last state was flushed to the disk."""
        self._flushed += 1
        self.dirty = False

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)


def same_file(fd: int, path: Path) -> bool:
    """Return whether a path leads to an open file; True if the path can't be checked now."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    opened = os.fstat(fd)
    return (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)
