"""One look at a file: watches set, bytes read, claims made. Blocking, so it runs in a thread."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from config.value_types import ByteSize
from pipeline.files.bounded_read import AbsentError, Stamp, UnreadableError, read_file
from pipeline.files.file_watch import Watcher
from pipeline.model import Claim
from pipeline.model.plugin_ids import reuse_unchanged


@dataclass(frozen=True, slots=True)
class FileClaims:
    """What a file says.

    Attributes:
        claims: all of them.
        problems: what is wrong with that which was left out; the first few.
    """

    claims: tuple[Claim, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """The file yields nothing."""

    text: str


Outcome: TypeAlias = FileClaims | Fault

Read: TypeAlias = Callable[[bytes], FileClaims]
"""Makes claims of a whole file, or raises `UnreadableError`: nothing of it can be used."""


class ClaimsFileReader:
    """Looks at the file again and again; keeps what it saw, so that equal claims are one object.

    Args:
        path: the file.
        max_size: a larger file is not read.
        read: makes claims of it.
        watcher: armed before each look.
        absent: what helps when there is no such file.
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
        self._outcome: Outcome = Fault("not looked at yet")
        self._listed = FileClaims(())

    def read(self, changed: bool) -> Outcome:
        """Return what the file says now.

        Args:
            changed: it may have changed; else its stamp decides whether it is read.
        """
        self._watcher.arm()
        # Two writes within a tick of the filesystem's clock bear one stamp. A stamp that was read
        # at two looks is old enough to mean something.
        known = self._stamp if self._settled and not changed else None
        try:
            content = read_file(self._path, self._max_size, known)
        except UnreadableError as error:
            self._stamp, self._settled = None, False
            mend = f"; {self._absent}" if self._absent and isinstance(error, AbsentError) else ""
            self._outcome = Fault(f"{error}{mend}")
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
            return Fault(str(error))
        if listed != self._listed:
            claims = reuse_unchanged(self._listed.claims, listed.claims)
            self._listed = FileClaims(claims, listed.problems)
        return self._listed
