"""Replaces a file atomically. All functions here block."""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Final

MODE: Final = 0o644
_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FIXES: Final = MappingProxyType(
    {
        errno.ENOENT: "the folder {folder} does not exist: create or mount it",
        errno.EACCES: "permission denied: uid {uid} must be able to write {place}",
        errno.EPERM: "permission denied: uid {uid} must be able to write {place}",
        errno.EROFS: "the file system is read-only: mount {place} writable",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota of uid {uid} is used up",
    }
)


class SweptError(Exception):
    """Another program has removed the temporary file before it was renamed."""


class AtomicFile:
    """A file that is replaced as a whole: a reader gets the old or the new content, never a mix.

    Args:
        path: the file.
        durable: whether the new content must survive a power failure.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._durable = durable

    def sweep(self) -> None:
        """Remove temporary files that a podgpu left when it was killed during a write.

        Raises:
            OSError: the folder does not exist or can't be read.
        """
        leftover = re.compile(re.escape(self._stem) + "[0-9a-f]{16}")
        with self._folder() as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor
                if leftover.fullmatch(name):
                    _remove(name, folder)

    def write(self, data: bytes, *, check: Callable[[], None] | None = None) -> None:
        """Replace the file. Everyone may read it. It keeps its owner if podgpu may set the owner.

        Args:
            data: the new content.
            check: called directly before the replacement. If it raises an exception, the file is
                not replaced.

        Raises:
            OSError: the file cannot be written. The old file is unchanged, unless only the last
                step failed, which flushes the folder.
            SweptError: another program removed the temporary file.
        """
        with self._folder() as folder, self._temporary_file(data, folder) as name:
            if check is not None:
                check()
            try:
                os.rename(name, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:  # removed by another podgpu, or with its folder
                raise SweptError from None
            if self._durable:
                os.fsync(folder)

    @property
    def _stem(self) -> str:
        return f".{self.path.name}.podgpu-"

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        descriptor = os.open(self.path.parent, _FOLDER_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _temporary_file(self, data: bytes, folder: int) -> Iterator[str]:
        """Write a file with a random name; remove it if the body fails."""
        name = self._stem + secrets.token_hex(8)
        descriptor = os.open(name, _NEW_FLAGS, 0o600, dir_fd=folder)
        try:
            try:
                write_all(descriptor, data)
                self._set_permissions(descriptor, folder)
                if self._durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield name
        except BaseException:
            _remove(name, folder)
            raise

    def _set_permissions(self, descriptor: int, folder: int) -> None:
        """Set the mode, whatever the umask is, and the owner of the old file if that is allowed."""
        os.fchmod(descriptor, MODE)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            old = os.stat(self.path.name, dir_fd=folder, follow_symlinks=False)
            os.fchown(descriptor, old.st_uid, old.st_gid)


def write_all(descriptor: int, data: bytes) -> None:
    """Write data at the start of a file.

    Raises:
        OSError: not all of it could be written.
    """
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], written)


def refusal(error: OSError, path: Path, place: Path) -> str:
    """Return why a file cannot be written, and how to fix it if that is known, as text for users.

    Args:
        error: the error.
        path: the file.
        place: path of what must be writable: the folder, or the file itself.
    """
    text = _FIXES.get(error.errno or 0, "") or os.strerror(error.errno or 0).lower()
    why = text.format(folder=path.parent, place=place, uid=os.geteuid())
    return f"cannot write {path}: {why}"


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
