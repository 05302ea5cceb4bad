"""Writes records to the last segment."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.disk.cursor import same_file
from pipeline.delivery.queue.disk.folder import QueueFolder
from pipeline.delivery.queue.disk.record_format import SEGMENT_SIZE, VERSION, SegmentHeader
from pipeline.delivery.queue.disk.segments import Segment
from pipeline.delivery.queue.disk.shared_state import DiskShared

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW: Final = _OPEN | os.O_CREAT | os.O_TRUNC


class SegmentWriter:
    """Writes to the last segment, if one is open.

    Args:
        folder: the folder of the segments.
        shared: settings and state of the queue.

    Attributes:
        dirty: whether there is data that is not flushed.
    """

    def __init__(self, folder: QueueFolder, shared: DiskShared) -> None:
        self._folder = folder
        self._fault_log = shared.fault_log
        self._flushes = shared.fsync_ns > 0
        self._fd = -1
        self._segment: Segment
        self.dirty = self._name_unflushed = self._flush_failed = self._failed = False

    @property
    def is_open(self) -> bool:
        """Whether a segment is open for writing."""
        return self._fd >= 0

    def exists(self) -> bool:
        """Return whether the open segment is still at its path; True if none is open."""
        return self._fd < 0 or same_file(self._fd, self._segment.path)

    def begin(self, number: int, position: int, record: int) -> Segment:
        """Create a new segment and open it for writing.

        The file gets its name after its header is written: a segment without a header is corrupt.

        Raises:
            OSError: the segment can't be created.
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
        segment = Segment(number, path, position, SEGMENT_SIZE)
        self._use(fd, segment)
        self._name_unflushed = True
        if self._flushes:
            self.sync(None)
        return segment

    def resume(self, segment: Segment, size: int) -> None:
        """Open an existing segment for writing, and truncate it; on an error, none is open."""
        fd = -1
        try:
            fd = os.open(segment.path, _OPEN)
            if os.fstat(fd).st_size != size:
                os.ftruncate(fd, size)
        except OSError:
            if fd >= 0:
                os.close(fd)
            return
        segment.size = size
        self._use(fd, segment)
        # An earlier process may have left it unflushed.
        self.dirty = True

    def _use(self, fd: int, segment: Segment) -> None:
        self._fd, self._segment = fd, segment
        self.dirty = self._name_unflushed = self._flush_failed = False

    def write(self, head: bytes, body: bytes) -> None:
        """Write a record.

        Raises:
            OSError: the record can't be written. A partly written record is truncated; if that
                fails too, the segment is closed.
        """
        segment = self._segment
        try:
            _write(self._fd, [head, body], segment.size)
        except OSError:
            try:
                os.ftruncate(self._fd, segment.size)
            except OSError:
                self.close_flushed()  # the reader finds no valid record in the rest
            raise
        segment.size += len(head) + len(body)
        self.dirty = True

    def flush(self) -> None:
        """Flush written records to the disk.

        After a failed fsync the kernel may have discarded the data. So the segment is closed, and
        a new one is used. If the flush of the new segment fails too, it stays in use until a flush
        succeeds, and is then closed. So a lasting fault costs two segments, not all of the room.
        """
        if not self._flushes or not self.dirty or self._fd < 0:
            return
        failed_before = self._failed
        if self.sync(self._fd) and (not self._name_unflushed or self.sync(None)):
            self.dirty = self._failed = False
            self._fault_log.record_recovery(
                "fsync", f"{self._folder.path} can be flushed to the disk again"
            )
            if self._flush_failed:
                self.close()
        else:
            self._flush_failed = self._failed = True
            if not failed_before:
                self.close()

    def sync(self, fd: int | None) -> bool:
        """Flush a file, or the names in the folder if None; return whether that succeeded."""
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
                f"cannot flush {self._folder.path} to the disk: {{}}; the latest records may be "
                "lost in a power failure. Check the disk, or set another queue.path",
            )
            return False
        return True

    def close_flushed(self) -> None:
        """Flush and close the segment; the next record needs a new segment."""
        self.flush()
        self.close()

    def close(self) -> None:
        """Close the segment without a flush."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.dirty = False
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
