"""Folders for temporary files, of which those of killed processes are removed later."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError

_NEW_SECONDS: Final = 60.0
"""A folder is not removed before this age: its process may not have locked it yet."""


@contextmanager
def work_folder(prefix: str, now: float) -> Iterator[Path]:
    """Create a folder for the context, in the folder that TMPDIR names, and remove it at the end.

    Folders with the same prefix whose processes were killed are removed first. A process holds the
    lock of its folder while it runs.

    Args:
        prefix: start of the folder's name, such as `podgpu-compact-`.
        now: the current time, in seconds of Unix time.

    Raises:
        TransientError: the folder cannot be created.
    """
    try:
        root = Path(tempfile.gettempdir())
        _sweep(root, prefix, now)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise TransientError(
            f"no folder for temporary files can be created: {error}; set TMPDIR to a folder that "
            f"uid {os.geteuid()} can write"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _sweep(root: Path, prefix: str, now: float) -> None:
    """Remove folders of processes that have ended. One that cannot be removed is left."""
    for path in root.glob(f"{prefix}*"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(descriptor)
                old = now - found.st_mtime > _NEW_SECONDS
                if old and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
