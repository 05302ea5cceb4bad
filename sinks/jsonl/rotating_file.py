"""A file that is rotated, by podgpu or another program, and flushed if configured."""

import contextlib
import os
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from pipeline.files.disk_sync import flush_folder
from pipeline.model import NS, Instant
from sinks.jsonl.compressor import Compressor
from sinks.jsonl.line_encoder import PREFIX, Batch
from sinks.jsonl.options import Options
from sinks.jsonl.rotated_files import Rotated
from sinks.jsonl.target import FailureLog, WriteFault

# O_APPEND: after another program truncates the file, the next line is at the new end. O_RDWR: to
# read the last line. O_NOFOLLOW: the path has no link, unless someone creates one.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW
_BLOCK: Final = 64 << 10
_MAX_TAIL: Final = 4 << 20


class RotatingFile:
    """Appends lines to a file, rotates it, and flushes it if configured.

    If another program renames or deletes the file or its folder, the next line goes to a new file
    at the path. If another program truncates the file, the next line is at the new end.

    Args:
        path: the file, without symbolic links.
        options: see `docs/sinks/jsonl.md`.
        now: time of the start.
        failures: collects failures that lose no line.

    Raises:
        OSError: the file can't be opened.
    """

    def __init__(self, path: Path, options: Options, now: Instant, failures: FailureLog) -> None:
        self._path = path
        self._failures = failures
        self._max_size = int(options.max_size)
        self._max_age_ns = options.max_age.ns
        self._rotates = bool(options.keep and (options.max_size or options.max_age))
        self._rotated = Rotated(path, options.keep if self._rotates else 0)
        self._flushes = bool(options.fsync)
        self._dirty = self._name_unsynced = self._lost_data = self._flush_failed = False
        self._compressor: Compressor | None = None
        self._fd = -1
        self._torn = False
        self._started_ns = 0
        try:
            self._open(now)
            self._started_ns -= self._age_ns(now)
            self._rotated.sweep()
        except OSError:
            self.close()
            raise
        if options.compress == "gzip" and self._rotates:
            self._compressor = Compressor(self._rotated, failures)
            self._compressor.wake()

    def write(self, batch: Batch, now: Instant) -> WriteFault | None:
        """Append all lines, to a new file if rotation is due; return why not all were written.

        A line that was written in part is removed or completed before the next line.
        """
        data = memoryview(b"".join(batch.lines))
        written = 0
        try:
            self._prepare(len(data), now)
            while written < len(data):
                written += os.write(self._fd, data[written:])
                self._dirty = True
        except OSError as cause:
            lines, end = batch.whole(written)
            self._torn = self._torn or end < written
            with contextlib.suppress(OSError):  # it is repaired before the next line
                self._repair()
            return WriteFault(lines, cause)
        return None

    def sync(self, now: Instant) -> None:
        """Flush the lines that were written since the last flush.

        After a failed fsync the disk has dropped the data, so podgpu continues in a new file. If
        the flush of the new file fails too, podgpu keeps that file until a flush succeeds, and then
        starts another one. So a fault that lasts affects two files, not all rotated files.
        """
        failed_before = self._flush_failed
        if self._flush():
            if self._lost_data:
                self._rotate(now)
        elif not failed_before:
            self._rotate(now)

    def close(self) -> None:
        """Flush and close the file, and stop the compression."""
        if self._compressor is not None:
            self._compressor.close()
        self._release()

    def _release(self) -> None:
        if self._fd >= 0:
            self._flush()
            fd, self._fd = self._fd, -1
            self._dirty = False
            os.close(fd)

    def _flush(self) -> bool:
        """Flush the file and its folder; return whether there is nothing left to flush."""
        if not self._flushes or not self._dirty or self._fd < 0:
            return True
        try:
            os.fsync(self._fd)
            if self._name_unsynced:
                flush_folder(self._path.parent)
                self._name_unsynced = False
        except OSError as error:
            self._lost_data = self._flush_failed = True
            self._failures.record("fsync", error)
            return False
        self._dirty = self._flush_failed = False
        self._failures.record("fsync")
        return True

    def _rotate(self, now: Instant) -> None:
        """Continue in a new file, unless another program has replaced the file at the path."""
        try:
            if self._size() is None:
                return
            with contextlib.suppress(OSError):
                self._repair()
            if self._rotates:
                self._rotated.take()
            else:
                # Another program rotates this file, so the numbered names are not podgpu's.
                self._path.replace(self._path.with_name(f"{self._path.name}.unsynced"))
            self._start_new_file(now)
        except OSError as error:
            self._failures.record("fsync", error)

    def _prepare(self, added: int, now: Instant) -> None:
        size = self._size()
        if size is None:
            self._release()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            size = self._open(now)
        else:
            self._repair()
        if size == 0:
            self._started_ns = now.mono_ns
        elif self._rotation_due(size + added, now):
            if self._rotates:
                self._flush()
            self._rotated.take()
            self._start_new_file(now)

    def _start_new_file(self, now: Instant) -> None:
        """Continue in a new file, after the previous one was moved away."""
        self._dirty = False
        self._release()
        self._open(now)
        if self._compressor is not None:
            self._compressor.wake()

    def _size(self) -> int | None:
        """Return the size of the open file; None if it is not at the path any more."""
        if self._fd < 0:
            return None
        opened = os.fstat(self._fd)
        try:
            at_path = self._path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return at_path.st_size if os.path.samestat(opened, at_path) else None

    def _open(self, now: Instant) -> int:
        self._started_ns = now.mono_ns
        self._fd = os.open(self._path, _FLAGS, 0o644)
        self._torn = self._name_unsynced = True
        self._lost_data = False
        self._repair()
        return os.fstat(self._fd).st_size

    def _repair(self) -> None:
        if self._torn:
            repair_tail(self._fd)
            self._torn = False

    def _rotation_due(self, size: int, now: Instant) -> bool:
        if self._max_size and size > self._max_size:
            return True
        return bool(self._max_age_ns) and now.mono_ns - self._started_ns >= self._max_age_ns

    def _age_ns(self, now: Instant) -> int:
        """Return the age of the file by its first line, so that a restart does not reset the age.

        Used only at the start: later the monotonic clock counts, so that a step of the wall clock
        has no effect.
        """
        if not self._max_age_ns:
            return 0
        first, _, _ = os.pread(self._fd, _BLOCK, 0).partition(b"\n")
        try:
            time = datetime.fromisoformat(orjson.loads(first)["time"])
            return max(now.wall_ns - round(time.timestamp()) * NS, 0)
        except (ValueError, TypeError, KeyError, OverflowError):
            return 0


def repair_tail(fd: int) -> None:
    """Make the file end with a complete line.

    An incomplete last line of podgpu is removed, because no reader could parse it. Any other last
    line without a newline gets one. So no readable data is lost, and lines are not joined.
    """
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return
    tail = b""
    start = size
    while start > 0 and len(tail) < _MAX_TAIL and b"\n" not in tail:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(fd, step, start) + tail
    last_line = tail.rfind(b"\n") + 1
    if (last_line or start == 0) and _is_torn(tail[last_line:]):
        os.ftruncate(fd, start + last_line)
    else:
        os.write(fd, b"\n")


def _is_torn(line: bytes) -> bool:
    if not (line.startswith(PREFIX) or PREFIX.startswith(line)):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return True
    return False
