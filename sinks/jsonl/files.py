"""A file that is rotated, here or by others."""

import os
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from pipeline.model import NS, Instant
from sinks.jsonl.lines import Batch
from sinks.jsonl.options import Options
from sinks.jsonl.tail import mend_tail
from sinks.jsonl.target import UnwrittenError

# Appending, so that after a truncation by others the next line stands at the new end. Reading, to
# look at the last line.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
_FIRST_LINE: Final = 64 << 10


class FileTarget:
    """Appends to a file.

    Rotated files are named `<path>.1`, the newest, to `<path>.<keep>`. If somebody else renames,
    deletes or truncates the file or its folder, the next line goes to a file at the path again.

    Args:
        path: the file.
        options: see `docs/sinks/jsonl.md`.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, path: Path, options: Options, now: Instant) -> None:
        self._path = path
        self._max_size = int(options.max_size)
        self._max_age_ns = options.max_age.ns
        self._keep = options.keep
        self._fd = -1
        self._torn = False
        self._begun_ns = now.mono_ns
        try:
            self._open()
            self._begun_ns -= self._age_ns(now)
        except OSError:
            self.close()
            raise

    def write(self, batch: Batch, now: Instant) -> None:
        """Append all lines, to a new file if it is time for one."""
        data = memoryview(b"".join(batch.lines))
        written = 0
        try:
            self._prepare(len(data), now)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as cause:
            lines, border = batch.whole(written)
            self._torn = self._torn or border < written
            self._try_to_mend()
            raise UnwrittenError(lines, cause) from cause

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _prepare(self, more: int, now: Instant) -> None:
        size = self._size()
        if size is None:
            self.close()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            size = self._open()
            self._begun_ns = now.mono_ns
        elif self._torn:
            mend_tail(self._fd)
            self._torn = False
        if size == 0:
            self._begun_ns = now.mono_ns
        elif self._due(size + more, now):
            self._rotate()
            self.close()
            self._open()
            self._begun_ns = now.mono_ns

    def _size(self) -> int | None:
        """Return the size of the file at the path; None if that is no longer ours."""
        if self._fd < 0:
            return None
        mine = os.fstat(self._fd)
        try:
            there = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        same = (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        return there.st_size if same else None

    def _open(self) -> int:
        self._fd = os.open(self._path, _FLAGS, 0o644)
        self._torn = True
        mend_tail(self._fd)
        self._torn = False
        return os.fstat(self._fd).st_size

    def _try_to_mend(self) -> None:
        if self._torn and self._fd >= 0:
            try:
                mend_tail(self._fd)
            except OSError:
                return  # done before the next line
            self._torn = False

    def _due(self, size: int, now: Instant) -> bool:
        if self._max_size and size > self._max_size:
            return True
        return bool(self._max_age_ns) and now.mono_ns - self._begun_ns >= self._max_age_ns

    def _rotate(self) -> None:
        """Make room at `.1`, moving no more files than need be, and move the file there."""
        if not self._keep:
            self._path.unlink()
            return
        free = 1
        while free < self._keep and self._numbered(free).exists():
            free += 1
        for number in range(free, 1, -1):
            self._numbered(number - 1).replace(self._numbered(number))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

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
