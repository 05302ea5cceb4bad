"""Writing at the end of the last segment."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.counters import Notices
from pipeline.delivery.queue.disk.cursor import same_file
from pipeline.delivery.queue.disk.folder import Folder
from pipeline.delivery.queue.disk.record_format import SEGMENT_SIZE, VERSION, SegmentHead
from pipeline.delivery.queue.disk.segments import Segment

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW: Final = _OPEN | os.O_CREAT | os.O_TRUNC


class Writer:
    """Has the last segment open, if it is one to go on in.

    Args:
        folder: where segments are.
        flushes: whether to flush at all.
        notices: where it is noted that the disk doesn't flush.
    """

    def __init__(self, folder: Folder, notices: Notices, *, flushes: bool) -> None:
        self._folder = folder
        self._notices = notices
        self._flushes = flushes
        self._fd = -1
        self._path = folder.path
        self._size = 0
        self._dirty = self._unnamed = self._stained = self._failed = False

    @property
    def opened(self) -> bool:
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

    def there(self) -> bool:
        """Whether the segment is still at its path, if there is one."""
        return self._fd < 0 or same_file(self._fd, self._path)

    def begin(self, number: int, position: int, record: int) -> Segment:
        """Go on in a new segment.

        It has its name once its header is written, so that a segment without one has been broken.

        Raises:
            OSError: it can't be made.
        """
        self.leave()
        path = self._folder.segment(number)
        unfinished = Path(f"{path}.tmp")
        fd = os.open(unfinished, _NEW, 0o600)
        try:
            _write(fd, [SegmentHead(VERSION, number, position, record).pack()], 0)
            if self._flushes:
                self.sync(fd)
            unfinished.rename(path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        self._take(fd, path, SEGMENT_SIZE)
        self._unnamed = True
        if self._flushes:
            self.sync(None)
        return Segment(number, path, position, SEGMENT_SIZE)

    def go_on(self, segment: Segment, size: int) -> bool:
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
        self._take(fd, segment.path, size)
        # An earlier process may have left it unflushed.
        self._dirty = True
        return True

    def _take(self, fd: int, path: Path, size: int) -> None:
        self._fd, self._path, self._size = fd, path, size
        self._dirty = self._unnamed = self._stained = False

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
                self.leave()  # a reader finds no record there
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
        if self.sync(self._fd) and (not self._unnamed or self.sync(None)):
            self._dirty = self._failed = False
            self._notices.works("fsync", f"{self._folder.path} is flushed to the disk again")
            if self._stained:
                self.forget()
        else:
            self._stained = self._failed = True
            if not again:
                self.forget()

    def sync(self, fd: int | None) -> bool:
        """Flush a file of the queue, or the names in the folder; whether that was done."""
        try:
            if fd is None:
                self._folder.flush()
                self._unnamed = False
            else:
                os.fsync(fd)
        except OSError as error:
            self._notices.fails(
                "fsync",
                error,
                f"cannot flush {self._folder.path} to the disk: {{}}; what was written last may "
                "be missing after a power cut. Look after that disk, or choose another path",
            )
            return False
        return True

    def leave(self) -> None:
        """Flush and close the segment; the next record needs a new one."""
        self.flush()
        self.forget()

    def forget(self) -> None:
        """Close the segment as it is."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._dirty = False
            with contextlib.suppress(OSError):
                os.close(fd)


def _write(fd: int, pieces: list[bytes], place: int) -> None:
    total = sum(map(len, pieces))
    written = os.pwritev(fd, pieces, place)
    while 0 < written < total:
        rest = memoryview(b"".join(pieces))[written:]
        more = os.pwrite(fd, rest, place + written)
        if not more:
            break
        written += more
    if written < total:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
