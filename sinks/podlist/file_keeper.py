"""Keeps podgpu's entries in the pod list file up to date. Almost all functions block."""

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.base.errors import TransientError
from pipeline.files.atomic_replace import MODE, AtomicFile, SweptError, refusal, write_all
from pipeline.files.bounded_read import AbsentError, Content, UnreadableError, read_file
from sinks.podlist.entry_encoder import Entry
from sinks.podlist.shared_list import (
    NoListError,
    SharedList,
    compose,
    entries_beside,
    parse_document,
)

_MAX_SIZE: Final = ByteSize.parse("10MiB")
_OVERWRITE_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# EROFS: how a container sees a file that is mounted on its read-only root file system.
_MOUNTED: Final = (errno.EBUSY, errno.EROFS)


class ChangedError(Exception):
    """Another program has written the file since it was read."""


_MAX_TRIES: Final = 5
_MAX_WARNINGS: Final = 8
"""Maximum number of warnings that wait to be logged. One call adds at most two."""


class PodListFile:
    """Updates podgpu's entries in the file, and writes only if its content has to change.

    Args:
        path: the file.
        in_place: write into the file instead of replacing it.
    """

    def __init__(self, path: Path, *, in_place: bool) -> None:
        self._path = path
        self._file = AtomicFile(path, durable=True)
        self._in_place = in_place
        self._warnings: deque[str] = deque(maxlen=_MAX_WARNINGS)
        self._data: bytes | None = None
        self._document = SharedList()

    def open(self) -> None:
        """Check whether the file can be updated, and remove temporary files of earlier processes.

        Raises:
            TransientError: the file cannot be updated, as far as a check without a write shows.
        """
        with self._with_fix():
            content = self._read()
            self._parse(content)
            if content is None or not self._in_place:
                self._file.sweep()

    def update(self, entries: tuple[Entry, ...], *, repair: bool) -> bool:
        """Replace podgpu's entries in the file, and keep the entries of other programs.

        Args:
            entries: podgpu's entries.
            repair: replace an incomplete list. Without it an incomplete list is left unchanged,
                because another program may be writing it.

        Returns:
            Whether the file is up to date; False if the list is incomplete and not repaired.

        Raises:
            TransientError: the file cannot be read or written.
        """
        with self._with_fix():
            for _ in range(_MAX_TRIES):
                content = self._read()
                document = self._parse(content)
                if not document.is_complete and not repair:
                    return False
                ours = entries_beside(document, entries)
                if content is not None and document.is_complete and document.own_entries == ours:
                    return True
                try:
                    self._write(compose(document.other_entries, ours), content)
                except ChangedError:
                    continue
                if not document.is_complete:
                    self._warnings.append(
                        f"{self._path}: was incomplete; podgpu replaced it, and kept "
                        f"{len(document.other_entries)} entries of other writers"
                    )
                return True
        raise TransientError(f"{self._path}: others change it faster than podgpu can update it")

    def take_warnings(self) -> Iterator[str]:
        """Remove the collected warnings, and yield them. Thread-safe, and does not block."""
        while self._warnings:
            yield self._warnings.popleft()

    def _read(self) -> Content | None:
        """Return the content of the file; None if the file does not exist.

        Raises:
            UnreadableError: the file exists, but cannot be read, is too large, or is not a regular
                file.
            OSError: podgpu cannot check whether the file exists.
        """
        try:
            found = self._path.lstat()
            if stat.S_ISLNK(found.st_mode):
                # A rename would put a file in the link's place.
                raise UnreadableError(
                    f"{self._path}: is a symbolic link; set path to the file that it points to"
                )
            if found.st_size > _MAX_SIZE:
                raise UnreadableError(
                    f"{self._path}: is larger than {_MAX_SIZE}, so it is not a pod list"
                )
            return read_file(self._path, _MAX_SIZE, None)
        except (FileNotFoundError, AbsentError):
            return None

    def _parse(self, content: Content | None) -> SharedList:
        data = content.data if content is not None else None
        if data != self._data:
            self._document = parse_document(data) if data is not None else SharedList()
            self._data = data
        return self._document

    def _write(self, data: bytes, before: Content | None) -> None:
        """Replace the file by a new one; write into it if `in_place` is set or it is mounted.

        Raises:
            OSError: the file cannot be written; the old content is restored if possible.
            ChangedError: another program has written the file since it was read.
        """
        if before is not None and self._in_place:
            self._overwrite(data, before)
            return
        try:
            self._file.write(data, check=partial(self._check, before))
        except SweptError:
            raise ChangedError from None
        except OSError as error:
            if before is None or error.errno not in _MOUNTED:
                raise
            self._overwrite(data, before)
            self._in_place = True
            self._warnings.append(
                f"{self._path}: is a mount point and cannot be replaced; podgpu writes into it "
                "instead"
            )

    def _overwrite(self, data: bytes, before: Content) -> None:
        """Write into the file, so that programs that have mounted or opened it see the change.

        Raises:
            OSError: the file cannot be written; the old content is restored if possible.
            ChangedError: another program has written the file since it was read.
        """
        old = before.data or b""
        try:
            descriptor = os.open(self._path, _OVERWRITE_FLAGS)
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
            now = read_file(self._path, _MAX_SIZE, before.stamp if before is not None else None)
        except AbsentError:
            if before is None:
                return
        else:
            if before is not None and now.data is None:
                return
        raise ChangedError

    @contextmanager
    def _with_fix(self) -> Iterator[None]:
        """Convert errors to `TransientError` with a message that says how to fix them."""
        path = self._path
        try:
            yield
        except UnreadableError as error:
            raise TransientError(str(error)) from error
        except NoListError as error:
            raise TransientError(
                f"{path}: contains something other than a pod list; move it away, or set another "
                "path"
            ) from error
        except OSError as error:
            place = path if self._in_place else path.parent
            raise TransientError(refusal(error, path, place)) from error
