"""Puts a new content in the place of a file's. Everything here blocks."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from config.types import ByteSize
from pipeline.files import AbsentError, Content, UnreadableError, read_file

_MODE: Final = 0o644
_MOST: Final = ByteSize.parse("10MiB")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INTO: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# The second is how a container sees a file that is mounted on its read-only root.
_MOUNTED: Final = (errno.EBUSY, errno.EROFS)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ChangedError(Exception):
    """Somebody has written the file since it was read."""


class MountedError(Exception):
    """The file is mounted by itself: nothing can be put in its place."""


class Target:
    """A file that somebody else may write too.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Content | None:
        """Return the file, None if there is none.

        Raises:
            UnreadableError: it is there and can't be read, or isn't a regular file.
            OSError: nobody can tell whether it is there.
        """
        try:
            found = self.path.lstat()
            if stat.S_ISLNK(found.st_mode):
                # A rename would put a file in the link's place.
                raise UnreadableError(f"{self.path}: is a symbolic link; give the path it leads to")
            if found.st_size > _MOST:
                raise UnreadableError(f"{self.path}: is larger than {_MOST}: no pod list is")
            return read_file(self.path, _MOST, None)
        except (FileNotFoundError, AbsentError):
            return None

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

    def replace(self, data: bytes, before: Content | None) -> None:
        """Put a finished file in the place of the one that was read: no reader sees half of it.

        Raises:
            OSError: it can't be written; the old one is untouched.
            ChangedError: see there.
            MountedError: see there.
        """
        try:
            with self._folder() as folder, self._finished(data, folder) as name:
                self._check(before)
                try:
                    os.rename(name, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)
                except FileNotFoundError:  # swept away by another podgpu, or with its folder
                    raise ChangedError from None
                os.fsync(folder)
        except OSError as error:
            if before is not None and error.errno in _MOUNTED:
                raise MountedError from error
            raise

    def overwrite(self, data: bytes, before: Content) -> None:
        """Write into the file that was read: who has it mounted or open sees the new content.

        Raises:
            OSError: it can't be written; it is as it was, if that could still be had.
            ChangedError: see there.
        """
        old = before.data or b""
        try:
            descriptor = os.open(self.path, _INTO)
        except FileNotFoundError:
            raise ChangedError from None
        try:
            self._check(before)
            try:
                # White space hides the end of a longer old content: what stands there after one
                # call is a list, with or without the truncation.
                _write(descriptor, data.ljust(len(old)))
                os.ftruncate(descriptor, len(data))
            except OSError:
                with contextlib.suppress(OSError):
                    _write(descriptor, old)
                    os.ftruncate(descriptor, len(old))
                raise
            with contextlib.suppress(PermissionError):  # somebody else's, and so is its mode
                os.fchmod(descriptor, _MODE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

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
                _write(descriptor, data)
                self._give_to_owner(descriptor, folder)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield name
        except BaseException:
            _remove(name, folder)
            raise

    def _give_to_owner(self, descriptor: int, folder: int) -> None:
        """Let the new file be as the old one was; whatever the umask is, all can read it."""
        os.fchmod(descriptor, _MODE)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            old = os.stat(self.path.name, dir_fd=folder, follow_symlinks=False)
            os.fchown(descriptor, old.st_uid, old.st_gid)

    def _check(self, before: Content | None) -> None:
        try:
            now = read_file(self.path, _MOST, before.stamp if before is not None else None)
        except AbsentError:
            if before is None:
                return
        else:
            if before is not None and now.data is None:
                return
        raise ChangedError


def _write(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], written)


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
