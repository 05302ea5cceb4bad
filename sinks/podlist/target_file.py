"""Puts a new content in the place of a file's. Everything here blocks."""

import contextlib
import errno
import os
import stat
from functools import partial
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.files import AbsentError, Content, UnreadableError, read_file
from pipeline.files.atomic_replace import MODE, AtomicFile, SweptError, write_all

_MOST: Final = ByteSize.parse("10MiB")
_INTO: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# The second is how a container sees a file that is mounted on its read-only root.
_MOUNTED: Final = (errno.EBUSY, errno.EROFS)


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
        self._place = AtomicFile(path, durable=True)

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
        self._place.sweep()

    def replace(self, data: bytes, before: Content | None) -> None:
        """Put a finished file in the place of the one that was read: no reader sees half of it.

        Raises:
            OSError: it can't be written; the old one is untouched.
            ChangedError: see there.
            MountedError: see there.
        """
        try:
            self._place.write(data, check=partial(self._check, before))
        except SweptError:
            raise ChangedError from None
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
                write_all(descriptor, data.ljust(len(old)))
                os.ftruncate(descriptor, len(data))
            except OSError:
                with contextlib.suppress(OSError):
                    write_all(descriptor, old)
                    os.ftruncate(descriptor, len(old))
                raise
            with contextlib.suppress(PermissionError):  # somebody else's, and so is its mode
                os.fchmod(descriptor, MODE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

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
