"""Keep the entries of podgpu in the file up to date. Almost all functions block."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.files import Content, UnreadableError
from pipeline.files.atomic_replace import refusal
from sinks.podlist.document import Document, compose, entries_beside, parse_document
from sinks.podlist.list_entries import Entry
from sinks.podlist.list_splitter import NoListError
from sinks.podlist.target_file import ChangedError, MountedError, Target

_MAX_TRIES: Final = 5
_MAX_WARNINGS: Final = 8
"""Limit of warnings that wait to be logged. One call adds at most two."""


class PodListFile:
    """Updates the file, and writes to it only if its content has to change.

    Args:
        path: the file.
        in_place: write into the file instead of replacing it.
    """

    def __init__(self, path: Path, *, in_place: bool) -> None:
        self._target = Target(path)
        self._in_place = in_place
        self._warnings: deque[str] = deque(maxlen=_MAX_WARNINGS)
        self._data: bytes | None = None
        self._document = Document()

    def open(self) -> None:
        """Check whether the file can be updated, and remove temporary files of earlier processes.

        Raises:
            TransientError: it cannot, as far as can be checked without writing.
        """
        with self._with_fix():
            content = self._target.read()
            self._parse(content)
            if content is None or not self._in_place:
                self._target.sweep()

    def update(self, entries: tuple[Entry, ...], *, repair: bool) -> bool:
        """Replace our entries in the file, and keep those of others.

        Args:
            entries: our entries.
            repair: replace an incomplete list. Otherwise another program may be writing it.

        Returns:
            Whether the file is up to date; False if the list is incomplete and not repaired.

        Raises:
            TransientError: the file cannot be read or written.
        """
        with self._with_fix():
            for _ in range(_MAX_TRIES):
                content = self._target.read()
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
                        f"{self._target.path}: was incomplete; podgpu replaced it, and kept "
                        f"{len(document.other_entries)} entries of other writers"
                    )
                return True
        raise TransientError(f"{self._target.path}: changes faster than it can be read and written")

    def take_warnings(self) -> Iterator[str]:
        """Yield each warning once. Thread-safe, and does not block."""
        while self._warnings:
            yield self._warnings.popleft()

    def _parse(self, content: Content | None) -> Document:
        data = content.data if content is not None else None
        if data != self._data:
            self._document = parse_document(data) if data is not None else Document()
            self._data = data
        return self._document

    def _write(self, data: bytes, content: Content | None) -> None:
        if content is None:
            self._target.replace(data, None)
        elif self._in_place:
            self._target.overwrite(data, content)
        else:
            try:
                self._target.replace(data, content)
            except MountedError:
                self._target.overwrite(data, content)
                self._in_place = True
                self._warnings.append(
                    f"{self._target.path}: is a mount point and cannot be replaced; podgpu writes "
                    "into it instead"
                )

    @contextmanager
    def _with_fix(self) -> Iterator[None]:
        """Convert errors to `TransientError` with a message that says how to fix them."""
        path = self._target.path
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
