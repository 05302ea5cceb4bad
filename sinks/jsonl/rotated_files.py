"""The full files beside the one being written. Everything here blocks."""

import contextlib
import os
import re
import secrets
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ENDINGS: Final = ("", ".gz")
_TRAILER: Final = 8
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"\x1f\x8b\x08\0"
_WORD: Final = 0xFFFFFFFF


class Rotated:
    """Numbered files `<path>.1`, the newest, to `<path>.<keep>`, plain or with `.gz` behind.

    Two threads work here: one rotates, one compresses; those of a sink that was replaced may not
    have ended yet. Names change under `lock` alone, which all of one path share and which is held
    for no longer than that takes.

    Args:
        path: the file being written.
        keep: how many there are at most.
    """

    _locks: Final[dict[Path, threading.RLock]] = {}

    def __init__(self, path: Path, keep: int) -> None:
        self.lock = self._locks.setdefault(path, threading.RLock())
        self._path = path
        self._keep = keep
        self._doubled: os.stat_result | None = None

    def take(self) -> None:
        """Make room at `.1`, moving no more files than need be, and move the file there.

        Raises:
            OSError: a file can't be moved.
        """
        with self.lock:
            self.settle()
            if not self._keep:
                self._path.unlink()
                return
            free = 1
            while free < self._keep and self._there(free):
                free += 1
            for old in self._there(free):
                old.unlink()
            for number in range(free, 1, -1):
                for ending in self._endings(number - 1):
                    old = self._numbered(number - 1, ending)
                    old.replace(self._numbered(number, ending))
            self._path.replace(self._numbered(1))

    def plain(self) -> Iterator[Path]:
        """Yield the files that aren't compressed, the oldest first."""
        for number in range(self._keep, 0, -1):
            path = self._numbered(number)
            if self._endings(number) == [""] and path.is_file() and not path.is_symlink():
                yield path

    def replace_by_compressed(self, found: os.stat_result, compressed: Path) -> bool:
        """Put a compressed file beside the plain one it was made of, wherever that is by now.

        Args:
            found: the plain file.
            compressed: a finished file in the same folder.

        Returns:
            Whether it was done; else the plain file has been rotated away or has changed.

        Raises:
            OSError: it can't be renamed.
        """
        with self.lock:
            for number in range(1, self._keep + 1):
                if self._endings(number) == [""] and _same(self._numbered(number), found):
                    compressed.rename(self._numbered(number, ".gz"))
                    self._doubled = found
                    return True
        return False

    def settle(self) -> None:
        """Remove the plain file whose compressed one stands beside it."""
        with self.lock:
            self._remove_of_two("")

    def undo(self) -> None:
        """Remove the compressed file again, if the plain one is still there."""
        with self.lock:
            self._remove_of_two(".gz")

    def unfinished(self) -> Path:
        """Return a name in the same folder that no one else has, which `sweep` knows again."""
        return self._path.with_name(self._stem + secrets.token_hex(8))

    def sweep(self) -> None:
        """Remove what a compression that was killed has left.

        That is an unfinished file, or a plain one beside the whole compressed one.
        """
        left = re.compile(re.escape(self._stem) + "[0-9a-f]{16}")
        with self.lock, contextlib.suppress(OSError):
            for name in os.listdir(self._path.parent):  # noqa: PTH208 - names are all it takes
                if left.fullmatch(name):
                    self._path.with_name(name).unlink()
            for number in range(1, self._keep + 1):
                if len(self._endings(number)) == len(ENDINGS):
                    plain, compressed = self._there(number)
                    if _made_of(compressed, plain):
                        plain.unlink()

    def _remove_of_two(self, ending: str) -> None:
        found, self._doubled = self._doubled, None
        if found is None:
            return
        for number in range(1, self._keep + 1):
            if len(self._endings(number)) == len(ENDINGS) and _same(self._numbered(number), found):
                self._numbered(number, ending).unlink(missing_ok=True)

    @property
    def _stem(self) -> str:
        return f".{self._path.name}.gz-"

    def _numbered(self, number: int, ending: str = "") -> Path:
        return self._path.with_name(f"{self._path.name}.{number}{ending}")

    def _endings(self, number: int) -> list[str]:
        return [ending for ending in ENDINGS if self._numbered(number, ending).exists()]

    def _there(self, number: int) -> list[Path]:
        return [self._numbered(number, ending) for ending in self._endings(number)]


def _same(path: Path, found: os.stat_result) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:  # somebody else removes files too
        return False
    return (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns) == (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
    )


def _made_of(compressed: Path, plain: Path) -> bool:
    """Whether a gzip file names the time of the plain one at its head and its size at its end.

    A file of ours has its name only once all of it is on the disk.
    """
    found = plain.stat()
    with compressed.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or _HEADER.unpack(head) != (_MAGIC, stamp(found)):
            return False
        if file.seek(0, os.SEEK_END) < _HEADER.size + _TRAILER:
            return False
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little") == found.st_size & _WORD


def stamp(found: os.stat_result) -> int:
    """Return the time of a file as gzip's header has it."""
    return int(found.st_mtime) & _WORD
