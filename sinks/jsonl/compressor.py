"""Compress rotated files with gzip, in a separate thread."""

import contextlib
import errno
import gzip
import os
import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import BinaryIO, Final

from pipeline.host.daemon_threads import DaemonExecutor
from sinks.jsonl.rotated_files import Rotated, stamp
from sinks.jsonl.target import FailureLog

_CHUNK: Final = 256 << 10
_GZIP_LEVEL: Final = 6
_CLOSE_TIMEOUT_S: Final = 0.3
"""Maximum number of seconds that closing waits until a running compression has stopped."""

_NICE: Final = 10
_MIN_RATIO: Final = 4
"""Compressed files are usually at least this many times smaller."""

_FATAL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors that would also affect the compression of every other file."""


class _StoppedError(Exception):
    """The compressor was closed."""


class Compressor:
    """Compresses rotated files, the oldest first, one at a time.

    There is no queue: the folder shows which files are not compressed yet.

    Args:
        rotated: the rotated files.
        failures: collects failed compressions.
    """

    def __init__(self, rotated: Rotated, failures: FailureLog) -> None:
        self._rotated = rotated
        self._failures = failures
        self._thread = DaemonExecutor("podgpu-jsonl-gzip")
        self._pass: Future[None] | None = None
        self._stopped = threading.Event()

    def wake(self) -> None:
        """Request a pass over all plain files. It starts after a running pass. Does not block."""
        last = self._pass
        if last is not None and last.done():
            last.result()  # raise the exception of a bug
        if last is None or last.running() or last.done():
            self._pass = self._thread.submit(self._compress_all)

    def close(self) -> None:
        """Stop the running compression; its file stays plain. No file is renamed after this call.

        Waits for the compression to stop, but not longer than a time limit.
        """
        with self._rotated.lock:
            self._stopped.set()
        if self._pass is not None:
            wait([self._pass], _CLOSE_TIMEOUT_S)
        self._thread.shutdown()

    def _compress_all(self) -> None:
        """Try each plain file once. A file that can't be compressed does not block the others.

        An error that would affect all files, such as a full disk, ends the pass.
        """
        with contextlib.suppress(OSError):  # a low priority, so that it does not slow down podgpu
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        tried: set[int] = set()
        compressed = failed = False
        while True:
            try:
                source = self._open_next(tried)
                if source is None:
                    break
                with source:
                    compressed |= self._compress(source)
            except _StoppedError:
                return
            except OSError as error:
                failed = True
                self._failures.record("compress", error)
                if error.errno in _FATAL:
                    return
        if compressed and not failed:
            self._failures.record("compress")

    def _open_next(self, tried: set[int]) -> BinaryIO | None:
        """Open the oldest plain file that was not tried in this pass; None if there is none."""
        with self._rotated.lock:
            for path in self._rotated.plain():
                inode = path.stat().st_ino
                if inode not in tried:
                    tried.add(inode)
                    return os.fdopen(
                        os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb"
                    )
        return None

    def _compress(self, source: BinaryIO) -> bool:
        """Compress a file; return False if the file was rotated away or has changed meanwhile."""
        info, path = os.fstat(source.fileno()), self._rotated.unfinished()
        try:
            with open(path, "xb", opener=partial(os.open, mode=0o600)) as target:
                space = os.fstatvfs(target.fileno())
                if space.f_bavail * space.f_frsize < info.st_size // _MIN_RATIO:
                    # Leave the remaining space to new lines.
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._fill(target, source, info)
            with self._rotated.lock:
                self._check_stopped()
                return self._rotated.replace_by_compressed(info, path)
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _fill(self, target: BinaryIO, source: BinaryIO, info: os.stat_result) -> None:
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, target, stamp(info)) as gzip_file:
            while chunk := source.read(_CHUNK):
                self._check_stopped()
                gzip_file.write(chunk)
        target.flush()
        descriptor = target.fileno()
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, info.st_uid, info.st_gid)
        os.fchmod(descriptor, info.st_mode & 0o777)
        os.utime(descriptor, ns=(info.st_atime_ns, info.st_mtime_ns))
        os.fsync(descriptor)

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError
