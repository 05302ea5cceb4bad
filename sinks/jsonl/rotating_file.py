"""A file that is rotated, here or by others, and flushed if that is asked for."""

import os
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from pipeline.files.disk_sync import flush_folder
from pipeline.model import NS, Instant
from sinks.jsonl.compressor import Compressor
from sinks.jsonl.fault_reports import FailureLog
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.options import Options
from sinks.jsonl.rotated_files import Rotated
from sinks.jsonl.tail_repair import repair_tail
from sinks.jsonl.target import UnwrittenError

# Appending, so that after a truncation by others the next line stands at the new end. Reading, to
# look at the last line. Not through a link: the path has none, unless somebody puts one there.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW
_FIRST_LINE: Final = 64 << 10


class FileTarget:
    """Appends to a file.

    If somebody else renames, deletes or truncates the file or its folder, the next line goes to a
    file at the path again.

    Args:
        path: the file, without symbolic links.
        options: see `docs/sinks/jsonl.md`.
        now: the time of the start.
        failures: where failures are noted that cost no line.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, path: Path, options: Options, now: Instant, failures: FailureLog) -> None:
        self._path = path
        self._troubles = failures
        self._max_size = int(options.max_size)
        self._max_age_ns = options.max_age.ns
        self._rotates = bool(options.keep and (options.max_size or options.max_age))
        self._rotated = Rotated(path, options.keep if self._rotates else 0)
        self._flushes = bool(options.fsync)
        self._dirty = self._unnamed = self._stained = self._failed = False
        self._compressor: Compressor | None = None
        self._fd = -1
        self._torn = False
        self._begun_ns = now.mono_ns
        try:
            self._open()
            self._begun_ns -= self._age_ns(now)
            self._rotated.sweep()
        except OSError:
            self.close()
            raise
        if options.compress == "gzip" and self._rotates:
            self._compressor = Compressor(self._rotated, failures)
            self._compressor.wake()

    def write(self, batch: Batch, now: Instant) -> None:
        """Append all lines, to a new file if it is time for one."""
        data = memoryview(b"".join(batch.lines))
        written = 0
        try:
            self._prepare(len(data), now)
            while written < len(data):
                written += os.write(self._fd, data[written:])
                self._dirty = True
        except OSError as cause:
            lines, border = batch.whole(written)
            self._torn = self._torn or border < written
            self._repair()
            raise UnwrittenError(lines, cause) from cause

    def sync(self, now: Instant) -> None:
        """Flush what was written since the last time.

        A disk that refused has forgotten what it refused, so the file is left behind for a new one.
        If that fails too, the new one is left when the disk flushes again: a fault that lasts costs
        two files and not all that are kept.
        """
        again = self._failed
        if self._flush():
            if self._stained:
                self._rotate(now)
        elif not again:
            self._rotate(now)

    def close(self) -> None:
        """Close the file, flushed, and let no more be compressed."""
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
        """Flush the file and its name; whether all is on the disk that ever will be."""
        if not self._flushes or not self._dirty or self._fd < 0:
            return True
        try:
            os.fsync(self._fd)
            if self._unnamed:
                flush_folder(self._path.parent)
                self._unnamed = False
        except OSError as error:
            self._stained = self._failed = True
            self._troubles.record_failure("fsync", error)
            return False
        self._dirty = self._failed = False
        self._troubles.record_success("fsync")
        return True

    def _rotate(self, now: Instant) -> None:
        """Go on in a new file, if the one at the path is ours."""
        try:
            if self._size() is None:
                return
            self._repair()
            if self._rotates:
                self._rotated.take()
            else:
                # Its numbers belong to others.
                self._path.replace(self._path.with_name(f"{self._path.name}.unsynced"))
            self._begin(now)
        except OSError as error:
            self._troubles.record_failure("fsync", error)

    def _prepare(self, more: int, now: Instant) -> None:
        size = self._size()
        if size is None:
            self._release()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            size = self._open()
            self._begun_ns = now.mono_ns
        elif self._torn:
            repair_tail(self._fd)
            self._torn = False
        if size == 0:
            self._begun_ns = now.mono_ns
        elif self._due(size + more, now):
            if self._rotates:
                self._flush()
            self._rotated.take()
            self._begin(now)

    def _begin(self, now: Instant) -> None:
        """Go on in a new file; the one before has been moved away."""
        self._dirty = False
        self._release()
        self._open()
        self._begun_ns = now.mono_ns
        if self._compressor is not None:
            self._compressor.wake()

    def _size(self) -> int | None:
        """Return the size of the file at the path; None if that is no longer ours."""
        if self._fd < 0:
            return None
        mine = os.fstat(self._fd)
        try:
            there = self._path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        same = (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        return there.st_size if same else None

    def _open(self) -> int:
        self._fd = os.open(self._path, _FLAGS, 0o644)
        self._torn = self._unnamed = True
        self._stained = False
        repair_tail(self._fd)
        self._torn = False
        return os.fstat(self._fd).st_size

    def _repair(self) -> None:
        if self._torn and self._fd >= 0:
            try:
                repair_tail(self._fd)
            except OSError:
                return  # done before the next line
            self._torn = False

    def _due(self, size: int, now: Instant) -> bool:
        if self._max_size and size > self._max_size:
            return True
        return bool(self._max_age_ns) and now.mono_ns - self._begun_ns >= self._max_age_ns

    def _age_ns(self, now: Instant) -> int:
        """Return how old the file is by its first line: a restart doesn't make it younger.

        From then on the monotonic clock tells: a step of the wall clock makes no file older.
        """
        if not self._max_age_ns:
            return 0
        first, _, _ = os.pread(self._fd, _FIRST_LINE, 0).partition(b"\n")
        try:
            time = datetime.fromisoformat(orjson.loads(first)["time"])
            return max(now.wall_ns - round(time.timestamp()) * NS, 0)
        except (ValueError, TypeError, KeyError, OverflowError):
            return 0
