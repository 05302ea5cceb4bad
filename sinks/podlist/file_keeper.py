"""Keeps the file true. Nearly everything here blocks."""

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

_TRIES: Final = 5
_REMARKS: Final = 8
"""What is to be said and nobody has taken yet: one call makes two of them at most."""


class PodListFile:
    """Brings the file to what it should be, and touches it only if it isn't so.

    Args:
        path: the file.
        in_place: write into the file instead of replacing it.
    """

    def __init__(self, path: Path, *, in_place: bool) -> None:
        self._target = Target(path)
        self._in_place = in_place
        self._remarks: deque[str] = deque(maxlen=_REMARKS)
        self._data: bytes | None = None
        self._document = Document()

    def open(self) -> None:
        """Find out whether the file can be kept, and clear away what was left beside it.

        Raises:
            TransientError: it can't, as far as can be told without writing.
        """
        with self._with_fix():
            content = self._target.read()
            self._parse(content)
            if content is None or not self._in_place:
                self._target.sweep()

    def update(self, entries: tuple[Entry, ...], *, repair: bool) -> bool:
        """Let our entries in the file be these, and leave all others as they are.

        Args:
            entries: ours.
            repair: a list without an end has been so for long enough: nobody is at work on it.

        Returns:
            Whether that is so now; False if the list has no end and isn't to be mended.

        Raises:
            TransientError: it can't be done.
        """
        with self._with_fix():
            for _ in range(_TRIES):
                before = self._target.read()
                document = self._parse(before)
                if not document.is_complete and not repair:
                    return False
                ours = entries_beside(document, entries)
                if before is not None and document.is_complete and document.own_entries == ours:
                    return True
                try:
                    self._write(compose(document.other_entries, ours), before)
                except ChangedError:
                    continue
                if not document.is_complete:
                    self._remarks.append(
                        f"{self._target.path}: was no whole list; {len(document.other_entries)} "
                        "entries of others could be kept"
                    )
                return True
        raise TransientError(f"{self._target.path}: changes faster than it can be read and written")

    def take_warnings(self) -> Iterator[str]:
        """Yield what it had to do otherwise, once; from any thread, and without blocking."""
        while self._remarks:
            yield self._remarks.popleft()

    def _parse(self, content: Content | None) -> Document:
        data = content.data if content is not None else None
        if data != self._data:
            self._document = parse_document(data) if data is not None else Document()
            self._data = data
        return self._document

    def _write(self, data: bytes, before: Content | None) -> None:
        if before is None:
            self._target.replace(data, None)
        elif self._in_place:
            self._target.overwrite(data, before)
        else:
            try:
                self._target.replace(data, before)
            except MountedError:
                self._target.overwrite(data, before)
                self._in_place = True
                self._remarks.append(
                    f"{self._target.path}: is mounted by itself and can't be replaced; writing "
                    "into it instead"
                )

    @contextmanager
    def _with_fix(self) -> Iterator[None]:
        """Tell what went wrong so that somebody can mend it."""
        path = self._target.path
        try:
            yield
        except UnreadableError as error:
            raise TransientError(str(error)) from error
        except NoListError as error:
            raise TransientError(
                f"{path}: holds something else than a pod list; move it away, or give another path"
            ) from error
        except OSError as error:
            place = path if self._in_place else path.parent
            raise TransientError(refusal(error, path, place)) from error
