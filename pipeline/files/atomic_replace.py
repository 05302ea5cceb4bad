"""Puts a finished file in the place of another. Everything here blocks."""

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
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FIXES: Final = MappingProxyType(
    {
        errno.ENOENT: "the folder {folder} isn't there: make it, or mount it",
        errno.EACCES: "permission denied to uid {uid}, which has to write {place}",
        errno.EPERM: "permission denied to uid {uid}, which has to write {place}",
        errno.EROFS: "the file system is read-only: mount {place} writable",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota of uid {uid} is used up",
    }
)


class SweptError(Exception):
    """Somebody has taken the finished file away before it got its name."""


class AtomicFile:
    """A file that is replaced as a whole: a reader finds the old one or the new one, never a part.

    Args:
        path: the file.
        durable: a new content has to outlive a power cut.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._lasting = durable

    def sweep(self) -> None:
        """Remove what a podgpu that was killed in the middle of a write has left behind.

        Raises:
            OSError: the folder isn't there or can't be read.
        """
        left = re.compile(re.escape(self._stem) + "[0-9a-f]{16}")
        with self._folder() as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor
                if left.fullmatch(name):
                    _remove(name, folder)

    def write(self, data: bytes, *, check: Callable[[], None] | None = None) -> None:
        """Let the file have this content, all may read it, and its owner stay, if that may be.

        Args:
            data: the whole content.
            check: called in the last moment; what it raises leaves the file as it is.

        Raises:
            OSError: it can't be written; the old file is untouched.
            SweptError: see there.
        """
        with self._folder() as folder, self._finished(data, folder) as name:
            if check is not None:
                check()
            try:
                os.rename(name, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:  # swept away by another podgpu, or with its folder
                raise SweptError from None
            if self._lasting:
                os.fsync(folder)

    @property
    def _stem(self) -> str:
        return f".{self.path.name}.podgpu-"

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        descriptor = os.open(self.path.parent, _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _finished(self, data: bytes, folder: int) -> Iterator[str]:
        """Make a file of a name that nobody can guess, and remove it unless it gets another."""
        name = self._stem + secrets.token_hex(8)
        descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
        try:
            try:
                write_all(descriptor, data)
                self._give_to_owner(descriptor, folder)
                if self._lasting:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield name
        except BaseException:
            _remove(name, folder)
            raise

    def _give_to_owner(self, descriptor: int, folder: int) -> None:
        """Let the new file be as the old one was; whatever the umask is, all can read it."""
        os.fchmod(descriptor, MODE)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            old = os.stat(self.path.name, dir_fd=folder, follow_symlinks=False)
            os.fchown(descriptor, old.st_uid, old.st_gid)


def write_all(descriptor: int, data: bytes) -> None:
    """Write from the beginning of a file.

    Raises:
        OSError: not all of it could be written.
    """
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], written)


def refusal(error: OSError, path: Path, place: Path) -> str:
    """Tell why a file can't be written, and how to mend that.

    Args:
        error: what the system said.
        path: the file.
        place: what has to be writable for it: its folder, or the file itself.
    """
    text = _FIXES.get(error.errno or 0, "") or os.strerror(error.errno or 0).lower()
    why = text.format(folder=path.parent, place=place, uid=os.geteuid())
    return f"cannot write {path}: {why}"


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
