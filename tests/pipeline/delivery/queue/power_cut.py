"""A fake disk that loses power: pages that were not flushed are on it in part, in any order."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PAGE = 4096


@dataclass
class File:
    """A file as it is on disk, and its contents since it was flushed."""

    durable: bytes = b""
    now: bytes = b""
    versions: list[bytes] = field(default_factory=list)

    def change(self, now: bytes) -> None:
        self.now = now
        self.versions.append(now)

    def flush(self) -> None:
        self.durable = self.now
        self.versions.clear()

    def after(self, chance: random.Random) -> bytes:
        """Return the content after a power cut: each page, and the size, as of a random moment."""
        moments = [self.durable, *self.versions]
        size = len(chance.choice(moments))
        pages = []
        for start in range(0, size, PAGE):
            page = chance.choice(moments)[start : start + PAGE]
            pages.append(page.ljust(min(PAGE, size - start), b"\0")[: size - start])
        return b"".join(pages)


class Disk:
    """Follows all changes in a folder.

    Args:
        folder: all files in it are followed.
        patch: replaces system calls by ones that are followed.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._names: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        self._changes: list[tuple[str, File | None]] = []
        self._files: dict[int, File | None] = {}
        for name in ("open", "pwrite", "pwritev", "ftruncate", "fsync", "rename", "unlink"):
            patch.setattr(
                os, name, self._following(getattr(os, name), getattr(self, f"_did_{name}"))
            )

    def _following(
        self, call: Callable[..., object], follow: Callable[..., None]
    ) -> Callable[..., object]:
        def followed(*args: object, **kwargs: object) -> object:
            result = call(*args, **kwargs)
            follow(result, *args)
            return result

        return followed

    def cut(self, into: Path, chance: random.Random) -> None:
        """Create a folder with what is on the disk after a power cut at this moment."""
        names = dict(self._durable)
        changes: dict[str, list[File | None]] = {}
        for name, file in self._changes:
            changes.setdefault(name, []).append(file)
        for name, files in changes.items():
            done = files[: chance.randint(0, len(files))]
            if done and done[-1] is None:
                names.pop(name, None)
            elif done and done[-1] is not None:
                names[name] = done[-1]
        into.mkdir()
        for name, file in names.items():
            (into / name).write_bytes(file.after(chance))

    def _name(self, path: object) -> str | None:
        found = Path(str(path))
        return found.name if found.parent == self._folder else None

    def _set(self, name: str, file: File | None) -> None:
        if file is None:
            self._names.pop(name, None)
        else:
            self._names[name] = file
        self._changes.append((name, file))

    def _did_open(self, fd: int, path: object, flags: int, *_: object) -> None:
        if Path(str(path)) == self._folder:
            self._files[fd] = None
        elif (name := self._name(path)) is not None:
            if name not in self._names:
                self._set(name, File())
            if flags & os.O_TRUNC:
                self._names[name].change(b"")
            self._files[fd] = self._names[name]
        else:
            self._files.pop(fd, None)

    def _did_pwrite(self, done: int, fd: int, data: bytes, place: int) -> None:
        if (file := self._files.get(fd)) is not None:
            now = file.now.ljust(place, b"\0")
            file.change(now[:place] + bytes(data)[:done] + now[place + done :])

    def _did_pwritev(self, done: int, fd: int, pieces: list[bytes], place: int) -> None:
        self._did_pwrite(done, fd, b"".join(pieces), place)

    def _did_ftruncate(self, _: None, fd: int, size: int) -> None:
        if (file := self._files.get(fd)) is not None:
            file.change(file.now[:size].ljust(size, b"\0"))

    def _did_fsync(self, _: None, fd: int) -> None:
        if fd not in self._files:
            return
        file = self._files[fd]
        if file is not None:
            file.flush()
        else:
            self._durable = dict(self._names)
            self._changes.clear()

    def _did_rename(self, _: None, old: object, new: object) -> None:
        before, after = self._name(old), self._name(new)
        if before is not None and after is not None:
            self._set(after, self._names[before])
            self._set(before, None)

    def _did_unlink(self, _: None, path: object, **kwargs: object) -> None:
        if (name := self._name(path)) is not None:
            self._set(name, None)
