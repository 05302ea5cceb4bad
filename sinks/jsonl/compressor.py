"""Compress rotated files with gzip, in a separate thread."""

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

_CHUNK: Final = 256 << 10
_GZIP_LEVEL: Final = 6
_CLOSE_TIMEOUT_S: Final = 0.3
"""Maximum number of seconds that closing waits for a running compression to stop."""

_NICE: Final = 10
_MIN_RATIO: Final = 4
"""Compressed files are usually at least this many times smaller."""

_CREATE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FATAL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors that would also affect the compression of every other file."""


class _StoppedError(Exception):
    """The compressor was closed."""


class Compressor:
    """Compresses rotated files, the oldest first, one at a time.

    There is no queue: the files in the folder show what is left to do.

    Args:
        rotated: the rotated files.
        failures: receives failed compressions.
    """

    def __init__(self, rotated: Rotated, failures: FailureLog) -> None:
        self._rotated = rotated
        self._failures = failures
        self._thread = DaemonExecutor("podgpu-jsonl-gzip")
        self._call: Future[None] | None = None
        self._busy = False
        self._stopped = threading.Event()
        self._failed: set[int] = set()

    def wake(self) -> None:
        """Start to compress all plain files, unless it is running already. Does not block."""
        with self._rotated.lock:
            if not self._busy and not self._stopped.is_set():
                if self._call is not None and self._call.done():
                    self._call.result()  # raise the exception of a bug
                self._busy = True
                self._call = self._thread.submit(self._work)

    def close(self) -> None:
        """Abort the running compression; its file stays plain. No file is renamed after this."""
        with self._rotated.lock:
            self._stopped.set()
            with contextlib.suppress(OSError):
                self._rotated.settle()
        if self._call is not None:
            wait([self._call], _CLOSE_TIMEOUT_S)
        self._thread.shutdown()

    def _work(self) -> None:
        with contextlib.suppress(OSError):  # a low priority, so that it does not slow down podgpu
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        done, self._failed, released = 0, set(), False
        try:
            while (descriptor := self._next()) is not None:
                done += self._try(descriptor)
            released = True  # by _next(); a next pass may have set _busy since
            if done and not self._failed:
                self._failures.record_success("compress")
        except _StoppedError:
            pass
        except OSError as error:
            self._failures.record_failure("compress", error)
        finally:
            if not released:
                with self._rotated.lock:
                    self._busy = False

    def _next(self) -> int | None:
        """Open the oldest plain file that did not fail in this pass."""
        with self._rotated.lock:
            for path in self._rotated.plain():
                inode = path.stat().st_ino
                if inode in self._failed:
                    continue
                try:
                    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except OSError as error:
                    self._failed.add(inode)
                    self._failures.record_failure("compress", error)
            # Under the lock: a file that is rotated from now on starts another pass.
            self._busy = False
        return None

    def _try(self, descriptor: int) -> bool:
        """Compress a file. If it can't be read, skip it, so that it does not block the others."""
        info = os.fstat(descriptor)
        try:
            if self._compress(descriptor, info):
                return True
            if os.fstat(descriptor).st_nlink:  # it was changed, not rotated away
                self._failed.add(info.st_ino)
        except OSError as error:
            if error.errno in _FATAL:
                raise
            self._failed.add(info.st_ino)
            self._failures.record_failure("compress", error)
        finally:
            os.close(descriptor)
        return False

    def _compress(self, descriptor: int, info: os.stat_result) -> bool:
        path = self._rotated.unfinished()
        try:
            with _created(path) as target:
                space = os.fstatvfs(target)
                if space.f_bavail * space.f_frsize < info.st_size // _MIN_RATIO:
                    # Leave the remaining space to new lines.
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._fill(target, descriptor, info)
            with self._rotated.lock:
                if self._stopped.is_set():
                    raise _StoppedError
                if not self._rotated.replace_by_compressed(info, path):
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

    def _fill(self, target: int, source: int, info: os.stat_result) -> None:
        with (
            os.fdopen(target, "wb", closefd=False) as raw,
            gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, stamp(info)) as gzip_file,
        ):
            while chunk := os.read(source, _CHUNK):
                if self._stopped.is_set():
                    raise _StoppedError
                gzip_file.write(chunk)
        with contextlib.suppress(PermissionError):
            os.fchown(target, info.st_uid, info.st_gid)
        os.fchmod(target, info.st_mode & 0o777)
        os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
        os.fsync(target)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    descriptor = os.open(path, _CREATE_FLAGS, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
