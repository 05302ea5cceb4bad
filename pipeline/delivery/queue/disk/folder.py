"""The folder of a queue: its lock, its names, and what is put aside in it."""

import contextlib
import errno
import os
import re
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.disk.cursor import same_file
from pipeline.delivery.queue.disk.record_format import MAX_NUMBER
from pipeline.files import lock_file
from pipeline.files.disk_sync import flush_folder, flush_names

LOCK: Final = "lock"
CURSOR: Final = "cursor"
_SEGMENT: Final = re.compile(r"([0-9]{20})\.seg", re.ASCII)
_UNFINISHED: Final = re.compile(r"[0-9]{20}\.seg\.tmp", re.ASCII)
_ASIDE: Final = re.compile(r".+\.corrupt-([0-9]{8}T[0-9]{6}Z)", re.ASCII)
_MOST_ASIDE: Final = 4


_lock_holders: Final[Counter[tuple[int, int]]] = Counter()
"""How often this process has, or tries to get, which lock file, by device and inode.

A process number would not tell whose a lock is: in containers each podgpu may be number 1.
"""
_lock_holders_guard: Final = threading.Lock()


class LockedError(OSError):
    """Somebody else has the queue, or another part of this process.

    Attributes:
        owner: the process that wrote its number into the lock file; empty if it didn't.
        own_process: whether it is this process.
    """

    def __init__(self, path: Path, owner: str, *, own_process: bool) -> None:
        super().__init__(errno.EAGAIN, f"in use by {owner or 'another process'}", str(path))
        self.owner = owner
        self.own_process = own_process


class QueueFolder:
    """A folder that is ours as long as we hold its lock.

    The lock goes with the process, however that ends; the file stays.

    Args:
        path: the folder; made, for the owner alone, where it is missing.
        flushes: whether it shall outlive a power cut.

    Raises:
        LockedError: somebody else has it.
        OSError: it can't be made or written to.
    """

    def __init__(self, path: Path, *, flushes: bool) -> None:
        self.path = path
        self._self = self._lock = -1
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        for folder in new if flushes else ():
            _flush(folder.parent)
        try:
            # Open, so that no other folder gets its inode.
            self._self = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.lock()
            self._sweep()
        except OSError:
            self.close()
            raise

    def lock(self) -> None:
        """Take the lock, if the lock file isn't the one that is held already.

        Tried for a tenth of a second. Blocking.

        Raises:
            LockedError: somebody else has it.
            OSError: there can be no lock.
        """
        if self.is_locked():
            return
        self._unlock()
        self._lock = os.open(self.path / LOCK, lock_file.FLAGS, 0o600)
        holders = _count_lock_holder(os.fstat(self._lock), 1)
        try:
            lock_file.take(self._lock)
        except BlockingIOError:
            owner = lock_file.signed(self._lock)
            self._unlock()
            raise LockedError(self.path, owner, own_process=holders > 1) from None
        except OSError:
            self._unlock()
            raise
        lock_file.sign(self._lock)

    def is_locked(self) -> bool:
        """Whether the lock file is the one that is held."""
        return self._lock >= 0 and same_file(self._lock, self.path / LOCK)

    def exists(self) -> bool:
        """Whether what stands at the path is still this folder."""
        return same_file(self._self, self.path)

    def close(self) -> None:
        """Let others have it."""
        self._unlock()
        if self._self >= 0:
            fd, self._self = self._self, -1
            os.close(fd)

    def _unlock(self) -> None:
        if self._lock >= 0:
            fd, self._lock = self._lock, -1
            file = os.fstat(fd)
            os.close(fd)
            _count_lock_holder(file, -1)  # not before: whoever finds it locked has to know by whom

    def segment(self, number: int) -> Path:
        """Return where a segment is."""
        return self.path / segment_name(number)

    def flush(self) -> None:
        """Let the names in it outlive a power cut.

        Raises:
            OSError: the disk refuses; not if the file system knows no such thing.
        """
        flush_names(self._self)

    def quarantine(self, path: Path, wall_ns: int) -> Path:
        """Rename a file that can't be used, and remove all but the newest of those.

        Raises:
            OSError: it can't be renamed.
        """
        stamp = datetime.fromtimestamp(max(wall_ns, 0) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
        aside = path.with_name(f"{path.name}.corrupt-{stamp}")
        path.rename(aside)
        found = [(match[1], name) for name in self._names() if (match := _ASIDE.fullmatch(name))]
        for _, name in sorted(found)[:-_MOST_ASIDE]:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        return aside

    def _names(self) -> list[str]:
        return os.listdir(self.path)  # noqa: PTH208 - names are all it takes

    def _sweep(self) -> None:
        """Remove what was being made when the process was killed."""
        for name in self._names():
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(OSError):
                    (self.path / name).unlink()


def _count_lock_holder(lock: os.stat_result, change: int) -> int:
    """Count who in this process has a lock file, or tries to; returns how many do."""
    file = lock.st_dev, lock.st_ino
    with _lock_holders_guard:
        _lock_holders[file] += change
        holders = _lock_holders[file]
        if not holders:
            del _lock_holders[file]
    return holders


def _flush(folder: Path) -> None:
    with contextlib.suppress(OSError):  # one of another owner, say; then it isn't for us to do
        flush_folder(folder)


def segment_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:020}.seg"


def segment_numbers(path: Path) -> list[int]:
    """Return the numbers of the segments in a folder, in their order.

    Raises:
        OSError: it can't be listed.
    """
    names = os.listdir(path)  # noqa: PTH208 - names are all it takes
    found = (int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name)))
    return sorted(number for number in found if number < MAX_NUMBER)
