"""The folder of a queue: its lock, its file names, and files that were renamed as corrupt."""

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
_QUARANTINED: Final = re.compile(r".+\.corrupt-([0-9]{8}T[0-9]{6}Z)", re.ASCII)
_MAX_QUARANTINED: Final = 4


_lock_holders: Final[Counter[tuple[int, int]]] = Counter()
"""How often this process has each lock file locked or tries to lock it, by device and inode.

The pid in the lock file does not identify the holder: in containers each podgpu may have pid 1.
"""
_lock_holders_guard: Final = threading.Lock()


class LockedError(OSError):
    """The queue is in use: by another process, unless the error is an `OwnLockError`."""


class OwnLockError(LockedError):
    """The queue is in use by another part of this process."""


class KindError(OSError):
    """The folder contains records of another kind."""


class QueueFolder:
    """The locked folder of a queue.

    The lock ends with the process, however the process ends; the lock file stays. Unfinished
    segments of an earlier process are removed.

    Args:
        path: path of the folder; created if missing, with access for its owner only.
        flushes: whether the names of new folders are flushed to the disk.

    Raises:
        LockedError: the folder is in use.
        OSError: the folder can't be created or written.
    """

    def __init__(self, path: Path, *, flushes: bool) -> None:
        self.path = path
        self._self = self._lock = -1
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        for folder in new if flushes else ():
            with contextlib.suppress(OSError):  # for example a folder of another user
                flush_folder(folder.parent)
        try:
            # Kept open, so that no other folder gets its inode.
            self._self = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.lock()
            self._sweep()
        except OSError:
            self.close()
            raise

    def lock(self) -> None:
        """Lock the folder, unless this object has already locked the present lock file.

        Tries for a tenth of a second. Blocks.

        Raises:
            LockedError: the folder is in use.
            OSError: the lock file can't be opened or locked.
        """
        if self.is_locked():
            return
        self._unlock()
        self._lock = os.open(self.path / LOCK, lock_file.FLAGS, 0o600)
        holders = _count_lock_holder(os.fstat(self._lock), 1)
        try:
            lock_file.take(self._lock)
        except BlockingIOError:
            text = f"in use by {lock_file.signed(self._lock) or 'another process'}"
            self._unlock()
            error = OwnLockError if holders > 1 else LockedError
            raise error(errno.EAGAIN, text, str(self.path)) from None
        except OSError:
            self._unlock()
            raise
        lock_file.sign(self._lock)

    def is_locked(self) -> bool:
        """Return whether the lock file at the path is the one that this object has locked."""
        return self._lock >= 0 and same_file(self._lock, self.path / LOCK)

    def exists(self) -> bool:
        """Return whether the path still leads to this folder."""
        return same_file(self._self, self.path)

    def close(self) -> None:
        """Release the lock."""
        self._unlock()
        if self._self >= 0:
            fd, self._self = self._self, -1
            os.close(fd)

    def _unlock(self) -> None:
        if self._lock >= 0:
            fd, self._lock = self._lock, -1
            file = os.fstat(fd)
            os.close(fd)
            # Not before close: a part of this process that finds the lock must see its holder.
            _count_lock_holder(file, -1)

    def segment(self, number: int) -> Path:
        """Return the path of a segment."""
        return self.path / segment_name(number)

    def flush(self) -> None:
        """Flush the names in the folder to the disk.

        Raises:
            OSError: the disk fails. A file system that can't flush names is not an error.
        """
        flush_names(self._self)

    def quarantine(self, path: Path, wall_ns: int) -> Path:
        """Rename a file that can't be used; of all such files, keep only the newest four.

        Raises:
            OSError: the file can't be renamed.
        """
        stamp = datetime.fromtimestamp(max(wall_ns, 0) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
        renamed = path.with_name(f"{path.name}.corrupt-{stamp}")
        path.rename(renamed)
        found = [
            (match[1], name) for name in self._names() if (match := _QUARANTINED.fullmatch(name))
        ]
        for _, name in sorted(found)[:-_MAX_QUARANTINED]:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        return renamed

    def _names(self) -> list[str]:
        return os.listdir(self.path)  # noqa: PTH208 - only names are needed

    def _sweep(self) -> None:
        """Remove unfinished segments of a process that was killed."""
        for name in self._names():
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(OSError):
                    (self.path / name).unlink()


def _count_lock_holder(lock: os.stat_result, change: int) -> int:
    """Change the number of holders of a lock file in this process; return the new number."""
    file = lock.st_dev, lock.st_ino
    with _lock_holders_guard:
        _lock_holders[file] += change
        holders = _lock_holders[file]
        if not holders:
            del _lock_holders[file]
    return holders


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:020}.seg"


def segment_numbers(path: Path) -> list[int]:
    """Return the numbers of the segments in a folder, in order.

    Raises:
        OSError: the folder can't be listed.
    """
    names = os.listdir(path)  # noqa: PTH208 - only names are needed
    found = (int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name)))
    return sorted(number for number in found if number < MAX_NUMBER)
