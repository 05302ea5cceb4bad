"""Reads a file of claims: sets watches, reads the bytes, parses the claims."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from config.value_types import ByteSize
from pipeline.files.bounded_read import (
    AbsentError,
    Stamp,
    TooLargeError,
    UnreadableError,
    read_file,
)
from pipeline.files.file_watch import Watcher
from pipeline.model import Claim
from pipeline.model.plugin_ids import reuse_unchanged


@dataclass(frozen=True, slots=True)
class FileClaims:
    """The valid claims of a file.

    Attributes:
        claims: all valid claims.
        problems: descriptions of the first few invalid entries, which are skipped.
    """

    claims: tuple[Claim, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFault:
    """Why the whole file cannot be used, as text for users."""

    text: str


Outcome: TypeAlias = FileClaims | FileFault

Read: TypeAlias = Callable[[bytes], FileClaims]
"""Converts the content of a whole file to claims; raises `UnreadableError` if it is not usable."""


class ClaimFileReader:
    """Reads the file at each call of `read`, unless the file has not changed.

    The tuple `claims` of the result is the same object while the claims are equal.

    Args:
        path: the file.
        max_size: maximum size; a larger file is not used.
        read: converts the content to claims.
        watcher: sets its watches before each read, so that no change is missed.
        absent: how to fix a missing file; podgpu adds it to the message.
    """

    def __init__(
        self, path: Path, max_size: ByteSize, read: Read, watcher: Watcher, absent: str = ""
    ) -> None:
        self._path = path
        self._max_size = max_size
        self._read = read
        self._watcher = watcher
        self._absent = absent
        self._stamp: Stamp | None = None
        self._settled = False
        self._outcome: Outcome = FileFault("not read yet")
        self._listed = FileClaims(())

    def read(self, changed: bool) -> Outcome:
        """Return the file's current claims, or why it cannot be used. Blocks: use a thread.

        Args:
            changed: whether the file may have changed. If not, it is read only if its stamp
                differs, or was found by only one read so far.
        """
        self._watcher.arm()
        # Two writes within one tick of the filesystem's clock have the same stamp. A stamp is only
        # trusted once two reads have found it.
        known = self._stamp if self._settled and not changed else None
        try:
            content = read_file(self._path, self._max_size, known)
        except UnreadableError as error:
            self._stamp, self._settled = None, False
            fix = self._absent if isinstance(error, AbsentError) else ""
            if isinstance(error, TooLargeError):
                fix = "raise max_size"
            self._outcome = FileFault(f"{error}; {fix}" if fix else str(error))
            return self._outcome
        if content.data is None:
            return self._outcome
        self._settled = content.stamp == self._stamp
        self._stamp = content.stamp
        self._outcome = self._parse(content.data)
        return self._outcome

    def _parse(self, data: bytes) -> Outcome:
        try:
            listed = self._read(data)
        except UnreadableError as error:
            return FileFault(str(error))
        if listed != self._listed:
            claims = reuse_unchanged(self._listed.claims, listed.claims)
            self._listed = FileClaims(claims, listed.problems)
        return self._listed
