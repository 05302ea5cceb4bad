"""Full files become gzip files, in a thread of their own."""

import contextlib
import errno
import gzip
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final

from pipeline.files.disk_sync import flush_folder
from pipeline.host.daemon_threads import DaemonExecutor
from sinks.jsonl.fault_reports import FailureLog
from sinks.jsonl.rotated_files import Rotated, stamp

_PIECE: Final = 256 << 10
_LEVEL: Final = 6
_CLOSE_TIMEOUT_S: Final = 0.3
"""Seconds that a closing file waits for the compression it is in to give up."""

_NICE: Final = 10
_RARELY_LARGER: Final = 4
"""How many times smaller than the plain file the compressed one is at least, most of the time."""

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HOPELESS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""What stands in the way of one file stands in the way of all."""


class _StoppedError(Exception):
    """Nobody wants it any more."""


class Compressor:
    """Compresses the plain ones among the full files, the oldest first, one at a time.

    There is no queue: what is left to do stands in the folder.

    Args:
        rotated: the full files.
        troubles: where it is noted that a file can't be compressed.
    """

    def __init__(self, rotated: Rotated, troubles: FailureLog) -> None:
        self._rotated = rotated
        self._troubles = troubles
        self._thread = DaemonExecutor("podgpu-jsonl-gzip")
        self._call: Future[None] | None = None
        self._busy = False
        self._stopped = threading.Event()
        self._failed: set[int] = set()

    def wake(self) -> None:
        """Compress what there is, unless that is going on already; returns at once."""
        with self._rotated.lock:
            if not self._busy and not self._stopped.is_set():
                if self._call is not None and self._call.done():
                    self._call.result()  # a bug is not to go unseen
                self._busy = True
                self._call = self._thread.submit(self._work)

    def close(self) -> None:
        """Give up on the file in work, which stays plain. From now on no name changes."""
        with self._rotated.lock:
            self._stopped.set()
            with contextlib.suppress(OSError):
                self._rotated.settle()
        if self._call is not None:
            wait([self._call], _CLOSE_TIMEOUT_S)
        self._thread.shutdown()

    def _work(self) -> None:
        with contextlib.suppress(OSError):  # podgpu's own pace comes first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        done, self._failed, released = 0, set(), False
        try:
            while (descriptor := self._next()) is not None:
                done += self._try(descriptor)
            released = True  # by the last look; busy may be a next pass's since
            if done and not self._failed:
                self._troubles.record_success("compress")
        except _StoppedError:
            pass
        except OSError as error:
            self._troubles.record_failure("compress", error)
        finally:
            if not released:
                with self._rotated.lock:
                    self._busy = False

    def _next(self) -> int | None:
        """Open the oldest file that this pass hasn't failed with."""
        with self._rotated.lock:
            for path in self._rotated.plain():
                inode = path.stat().st_ino
                if inode in self._failed:
                    continue
                try:
                    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except OSError as error:
                    self._failed.add(inode)
                    self._troubles.record_failure("compress", error)
            # Under the lock: what is rotated from now on begins another pass.
            self._busy = False
        return None

    def _try(self, descriptor: int) -> bool:
        """Compress a file; one that can't be read doesn't keep others waiting."""
        found = os.fstat(descriptor)
        try:
            if self._compress(descriptor, found):
                return True
            if os.fstat(descriptor).st_nlink:  # changed, and not only rotated away
                self._failed.add(found.st_ino)
        except OSError as error:
            if error.errno in _HOPELESS:
                raise
            self._failed.add(found.st_ino)
            self._troubles.record_failure("compress", error)
        finally:
            os.close(descriptor)
        return False

    def _compress(self, descriptor: int, found: os.stat_result) -> bool:
        path = self._rotated.unfinished()
        try:
            with _created(path) as target:
                room = os.fstatvfs(target)
                if room.f_bavail * room.f_frsize < found.st_size // _RARELY_LARGER:
                    # The last of the room belongs to new lines.
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._fill(target, descriptor, found)
            with self._rotated.lock:
                if self._stopped.is_set():
                    raise _StoppedError
                if not self._rotated.replace_by_compressed(found, path):
                    return False
            try:
                flush_folder(path.parent)
            except OSError:
                self._rotated.undo()
                raise
            self._rotated.settle()
            return True
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _fill(self, target: int, source: int, found: os.stat_result) -> None:
        with (
            os.fdopen(target, "wb", closefd=False) as raw,
            gzip.GzipFile("", "wb", _LEVEL, raw, stamp(found)) as packed,
        ):
            while piece := os.read(source, _PIECE):
                if self._stopped.is_set():
                    raise _StoppedError
                packed.write(piece)
        with contextlib.suppress(PermissionError):
            os.fchown(target, found.st_uid, found.st_gid)
        os.fchmod(target, found.st_mode & 0o777)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fsync(target)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
