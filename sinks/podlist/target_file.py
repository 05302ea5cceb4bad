"""Replace or overwrite the content of a file that others may write too. All functions block."""

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

_MAX_SIZE: Final = ByteSize.parse("10MiB")
_OVERWRITE_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# EROFS: how a container sees a file that is mounted on its read-only root file system.
_MOUNTED: Final = (errno.EBUSY, errno.EROFS)


class ChangedError(Exception):
    """Another program has written the file since it was read."""


class MountedError(Exception):
    """The file is a mount point and cannot be replaced."""


class Target:
    """A file that other programs may write too.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = AtomicFile(path, durable=True)

    def read(self) -> Content | None:
        """Return the content of the file; None if it does not exist.

        Raises:
            UnreadableError: it exists and cannot be read, or is not a regular file.
            OSError: whether it exists cannot be checked.
        """
        try:
            found = self.path.lstat()
            if stat.S_ISLNK(found.st_mode):
                # A rename would put a file in the link's place.
                raise UnreadableError(f"{self.path}: is a symbolic link; give the path it leads to")
            if found.st_size > _MAX_SIZE:
                raise UnreadableError(
                    f"{self.path}: is larger than {_MAX_SIZE}, so it is not a pod list"
                )
            return read_file(self.path, _MAX_SIZE, None)
        except (FileNotFoundError, AbsentError):
            return None

    def sweep(self) -> None:
        """Remove temporary files that a killed podgpu left behind.

        Raises:
            OSError: the folder does not exist or cannot be read.
        """
        self._file.sweep()

    def replace(self, data: bytes, before: Content | None) -> None:
        """Replace the file by a new one. No reader sees an incomplete file.

        Raises:
            OSError: it cannot be written; the old file is unchanged.
            ChangedError: another program has written the file since it was read.
            MountedError: the file is a mount point.
        """
        try:
            self._file.write(data, check=partial(self._check, before))
        except SweptError:
            raise ChangedError from None
        except OSError as error:
            if before is not None and error.errno in _MOUNTED:
                raise MountedError from error
            raise

    def overwrite(self, data: bytes, before: Content) -> None:
        """Write into the file, so that programs that have mounted or opened it see the change.

        Raises:
            OSError: it cannot be written; the old content is restored if possible.
            ChangedError: another program has written the file since it was read.
        """
        old = before.data or b""
        try:
            descriptor = os.open(self.path, _OVERWRITE_FLAGS)
        except FileNotFoundError:
            raise ChangedError from None
        try:
            self._check(before)
            try:
                # A shorter text is padded with blanks to the old length, so that the file is a
                # valid list after one write, before it is truncated.
                write_all(descriptor, data.ljust(len(old)))
                os.ftruncate(descriptor, len(data))
            except OSError:
                with contextlib.suppress(OSError):
                    write_all(descriptor, old)
                    os.ftruncate(descriptor, len(old))
                raise
            with contextlib.suppress(PermissionError):  # another user owns the file and its mode
                os.fchmod(descriptor, MODE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check(self, before: Content | None) -> None:
        try:
            now = read_file(self.path, _MAX_SIZE, before.stamp if before is not None else None)
        except AbsentError:
            if before is None:
                return
        else:
            if before is not None and now.data is None:
                return
        raise ChangedError
