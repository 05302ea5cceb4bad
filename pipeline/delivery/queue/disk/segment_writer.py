"""Writing at the end of the last segment."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.counters import FaultLog
from pipeline.delivery.queue.disk.cursor import same_file
from pipeline.delivery.queue.disk.folder import QueueFolder
from pipeline.delivery.queue.disk.record_format import SEGMENT_SIZE, VERSION, SegmentHeader
from pipeline.delivery.queue.disk.segments import Segment

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW: Final = _OPEN | os.O_CREAT | os.O_TRUNC


class SegmentWriter:
    """Has the last segment open, if it is one to go on in.

    Args:
        folder: where segments are.
        flushes: whether to flush at all.
        notices: where it is noted that the disk doesn't flush.
    """

    def __init__(self, folder: QueueFolder, notices: FaultLog, *, flushes: bool) -> None:
        self._folder = folder
        self._fault_log = notices
        self._flushes = flushes
        self._fd = -1
        self._path = folder.path
        self._size = 0
        self._dirty = self._name_unflushed = self._flush_failed = self._failed = False

    @property
    def is_open(self) -> bool:
        """Whether there is a segment to go on in."""
        return self._fd >= 0

    @property
    def dirty(self) -> bool:
        """Whether a flush has something to do."""
        return self._dirty

    @property
    def size(self) -> int:
        """Bytes in the segment."""
        return self._size

    def exists(self) -> bool:
        """Whether the segment is still at its path, if there is one."""
        return self._fd < 0 or same_file(self._fd, self._path)

    def begin(self, number: int, position: int, record: int) -> Segment:
        """Go on in a new segment.

        It has its name once its header is written, so that a segment without one has been broken.

        Raises:
            OSError: it can't be made.
        """
        self.close_flushed()
        path = self._folder.segment(number)
        unfinished = Path(f"{path}.tmp")
        fd = os.open(unfinished, _NEW, 0o600)
        try:
            _write(fd, [SegmentHeader(VERSION, number, position, record).pack()], 0)
            if self._flushes:
                self.sync(fd)
            unfinished.rename(path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        self._use(fd, path, SEGMENT_SIZE)
        self._name_unflushed = True
        if self._flushes:
            self.sync(None)
        return Segment(number, path, position, SEGMENT_SIZE)

    def resume(self, segment: Segment, size: int) -> bool:
        """Go on in a segment that is there, cut to a size; whether that can be done."""
        fd = -1
        try:
            fd = os.open(segment.path, _OPEN)
            if os.fstat(fd).st_size != size:
                os.ftruncate(fd, size)
        except OSError:
            if fd >= 0:
                os.close(fd)
            return False
        self._use(fd, segment.path, size)
        # An earlier process may have left it unflushed.
        self._dirty = True
        return True

    def _use(self, fd: int, path: Path, size: int) -> None:
        self._fd, self._path, self._size = fd, path, size
        self._dirty = self._name_unflushed = self._flush_failed = False

    def write(self, head: bytes, body: bytes) -> None:
        """Write a record.

        Raises:
            OSError: it can't be written; what was written of it is cut off, or else the segment is
                left.
        """
        try:
            _write(self._fd, [head, body], self._size)
        except OSError:
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                self.close_flushed()  # a reader finds no record there
            raise
        self._size += len(head) + len(body)
        self._dirty = True

    def flush(self) -> None:
        """Let what was written outlive a power cut.

        A disk that refused has forgotten what it refused, so that the segment is left for a new
        one. If that fails too, the new one is left when the disk flushes again: a fault that lasts
        costs two segments, and not all that there is room for.
        """
        if not self._flushes or not self._dirty or self._fd < 0:
            return
        again = self._failed
        if self.sync(self._fd) and (not self._name_unflushed or self.sync(None)):
            self._dirty = self._failed = False
            self._fault_log.record_recovery(
                "fsync", f"{self._folder.path} is flushed to the disk again"
            )
            if self._flush_failed:
                self.close()
        else:
            self._flush_failed = self._failed = True
            if not again:
                self.close()

    def sync(self, fd: int | None) -> bool:
        """Flush a file of the queue, or the names in the folder; whether that was done."""
        try:
            if fd is None:
                self._folder.flush()
                self._name_unflushed = False
            else:
                os.fsync(fd)
        except OSError as error:
            self._fault_log.record_failure(
                "fsync",
                error,
                f"cannot flush {self._folder.path} to the disk: {{}}; what was written last may "
                "be missing after a power cut. Look after that disk, or choose another path",
            )
            return False
        return True

    def close_flushed(self) -> None:
        """Flush and close the segment; the next record needs a new one."""
        self.flush()
        self.close()

    def close(self) -> None:
        """Close the segment as it is."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._dirty = False
            with contextlib.suppress(OSError):
                os.close(fd)


def _write(fd: int, pieces: list[bytes], offset: int) -> None:
    total = sum(map(len, pieces))
    written = os.pwritev(fd, pieces, offset)
    while 0 < written < total:
        rest = memoryview(b"".join(pieces))[written:]
        more = os.pwrite(fd, rest, offset + written)
        if not more:
            break
        written += more
    if written < total:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
