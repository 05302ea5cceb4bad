"""The rotated files next to the current one. All functions of this module block."""

import contextlib
import os
import re
import secrets
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.files.disk_sync import flush_folder

ENDINGS: Final = ("", ".gz")
_TRAILER: Final = 8
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"\x1f\x8b\x08\0"
_UINT32: Final = 0xFFFFFFFF


class Rotated:
    """The numbered files `<path>.1` (the newest) to `<path>.<keep>`, plain or with `.gz`.

    Two threads use it: one rotates, and one compresses. Threads of a replaced sink may still run.
    Therefore files are only renamed under `lock`. All objects of a path share the lock, and it is
    held only while files are renamed and their folder is flushed.

    Args:
        path: the current file.
        keep: maximum number of rotated files.
    """

    _locks: Final[dict[Path, threading.RLock]] = {}

    def __init__(self, path: Path, keep: int) -> None:
        self.lock = self._locks.setdefault(path, threading.RLock())
        self._path = path
        self._keep = keep

    def take(self) -> None:
        """Move the current file to `.1`. Older files move up only as far as necessary.

        If all numbers are in use, the oldest file is deleted. If no file is to be kept, the current
        file is deleted.

        Raises:
            OSError: a file can't be moved or deleted.
        """
        with self.lock:
            if not self._keep:
                self._path.unlink()
                return
            free = 1
            while free < self._keep and self._endings(free):
                free += 1
            for ending in self._endings(free):
                self._numbered(free, ending).unlink()
            for number in range(free, 1, -1):
                for ending in self._endings(number - 1):
                    self._numbered(number - 1, ending).replace(self._numbered(number, ending))
            self._path.replace(self._numbered(1))

    def plain(self) -> Iterator[Path]:
        """Yield the files that are not compressed, the oldest first."""
        for number in range(self._keep, 0, -1):
            path = self._numbered(number)
            if self._endings(number) == [""] and path.is_file() and not path.is_symlink():
                yield path

    def replace_by_compressed(self, info: os.stat_result, compressed: Path) -> bool:
        """Replace a plain file, which may have another number now, by its compressed file.

        Args:
            info: status of the plain file when it was read.
            compressed: the complete compressed file in the same folder.

        Returns:
            Whether the file was replaced. If not, the plain file was rotated away or has changed.

        Raises:
            OSError: the file can't be renamed, or the folder can't be flushed. The plain file
                stays.
        """
        with self.lock:
            for number in range(1, self._keep + 1):
                plain, packed = self._numbered(number), self._numbered(number, ".gz")
                if self._endings(number) == [""] and _is_same_file(plain, info):
                    compressed.rename(packed)
                    try:
                        flush_folder(packed.parent)
                    except OSError:
                        packed.unlink(missing_ok=True)
                        raise
                    plain.unlink(missing_ok=True)
                    return True
        return False

    def unfinished(self) -> Path:
        """Return an unused name in the same folder, which `sweep` recognises."""
        return self._path.with_name(self._stem + secrets.token_hex(8))

    def sweep(self) -> None:
        """Remove the remains of a compression that was killed.

        These are unfinished compressed files, and plain files with a complete compressed copy.
        """
        unfinished = re.compile(re.escape(self._stem) + "[0-9a-f]{16}")
        with self.lock, contextlib.suppress(OSError):
            for name in os.listdir(self._path.parent):  # noqa: PTH208 - names are all it takes
                if unfinished.fullmatch(name):
                    self._path.with_name(name).unlink()
            for number in range(1, self._keep + 1):
                plain, compressed = (self._numbered(number, ending) for ending in ENDINGS)
                both = plain.exists() and compressed.exists()
                if both and _is_compressed_from(compressed, plain):
                    plain.unlink()

    @property
    def _stem(self) -> str:
        return f".{self._path.name}.gz-"

    def _numbered(self, number: int, ending: str = "") -> Path:
        return self._path.with_name(f"{self._path.name}.{number}{ending}")

    def _endings(self, number: int) -> list[str]:
        return [ending for ending in ENDINGS if self._numbered(number, ending).exists()]


def _is_same_file(path: Path, info: os.stat_result) -> bool:
    with contextlib.suppress(FileNotFoundError):  # another program may remove files too
        return _version(path.stat()) == _version(info)
    return False


def _version(info: os.stat_result) -> tuple[int, int, int, int]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _is_compressed_from(compressed: Path, plain: Path) -> bool:
    """Whether a gzip file was made of a plain file, by the time and the size that it contains.

    podgpu renames a compressed file only when all of it is on the disk.
    """
    info = plain.stat()
    with compressed.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or _HEADER.unpack(head) != (_MAGIC, stamp(info)):
            return False
        if file.seek(0, os.SEEK_END) < _HEADER.size + _TRAILER:
            return False
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little") == info.st_size & _UINT32


def stamp(info: os.stat_result) -> int:
    """Return the time of a file for a gzip header."""
    return int(info.st_mtime) & _UINT32
