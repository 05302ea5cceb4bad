"""Copies the effective objects of an archive to a folder, for reports."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from pipeline.archive.database import Database
from pipeline.archive.object_contents import (
    REPLACES_KEY,
    SERIALS_KEY,
    Contents,
    Origin,
    contents_of_raw,
    decode_contents,
)
from pipeline.archive.object_key import CompactedKey, parse, parse_compacted
from pipeline.archive.object_listing import Objects, effective, list_objects
from pipeline.archive.object_store import Store
from pipeline.archive.parquet_file import read_metadata
from pipeline.base.errors import ComponentError, PermanentError, TransientError

_ATTEMPTS: Final = 20

ReadContents: TypeAlias = Callable[[Mapping[Path, str]], dict[str, Contents]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Copies of the objects that together have each row at least once.

    Attributes:
        files: the key of the object by file.
        overlaps: the files with a serial that is in another file too. Other files have all their
            rows alone.
        foreign: keys that are not podgpu's. They are ignored.
    """

    files: Mapping[Path, str]
    overlaps: frozenset[Path]
    foreign: tuple[str, ...] = ()


class ObjectCopies:
    """Copies of objects in a folder. Each object is copied once.

    Args:
        store: the archive.
        folder: an existing folder for the copies.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._calls = 0
        self.paths: dict[str, Path] = {}

    def fetch(self, keys: Collection[str]) -> bool:
        """Copy objects that are not there yet; return whether all exist.

        Raises:
            TransientError: the store fails.
            PermanentError: the store refuses the request.
        """
        missing = [key for key in keys if key not in self.paths]
        if missing:
            self._calls += 1
            folder = self._folder / f"{self._calls:04}"
            folder.mkdir()
            self.paths |= self._store.get(missing, folder)
        return all(key in self.paths for key in keys)

    def files(self, keys: Collection[str]) -> dict[Path, str]:
        """Return the keys of copied objects by file."""
        return {self.paths[key]: key for key in keys}


def fetch_objects(
    store: Store,
    database: Database,
    folder: Path,
    *,
    clusters: Collection[str] = (),
    wanted: Callable[[date], bool] = lambda _: True,
) -> Selection:
    """Copy the effective objects of an archive. The errors are those of `fetch_with`.

    Args:
        store: the archive.
        database: reads the metadata of compacted objects.
        folder: an existing, empty folder for the copies.
        clusters: names of the clusters; empty for all.
        wanted: the UTC days that are needed.
    """
    read = partial(read_contents, database)
    return fetch_with(read, store, folder, clusters=clusters, wanted=wanted)


def fetch_with(
    read: ReadContents,
    store: Store,
    folder: Path,
    *,
    clusters: Collection[str] = (),
    wanted: Callable[[date], bool] = lambda _: True,
) -> Selection:
    """Copy the effective objects of an archive.

    Args:
        read: returns the contents of compacted objects by key, of files with their keys.
        store: the archive.
        folder: an existing, empty folder for the copies.
        clusters: names of the clusters; empty for all.
        wanted: the UTC days that are needed.

    Raises:
        TransientError: the store fails, or its content changes all the time.
        PermanentError: the store refuses a request, or an object is damaged, foreign or too new.
    """
    copies = ObjectCopies(store, folder)
    for _ in range(_ATTEMPTS):
        listing = list_objects(store, clusters, wanted)
        groups = listing.groups.values()
        if not copies.fetch([key for group in groups for key in group.compacted]):
            continue
        chosen = [key for group in groups for key in _effective(read, copies, group)]
        if copies.fetch(chosen):
            files = copies.files(chosen)
            return Selection(files, _overlaps(read, files), listing.foreign)
    raise TransientError(
        f"objects of the archive {store.location} disappear while they are read: is it compacted "
        "all the time? Try again later"
    )


def _effective(read: ReadContents, copies: ObjectCopies, group: Objects) -> Sequence[str]:
    if group.is_settled:
        return group.compacted
    contents = read(copies.files(group.compacted))
    raw, compacted = effective(group.raw, {key: c.replaces for key, c in contents.items()})
    return [*raw, *compacted]


def read_contents(database: Database, files: Mapping[Path, str]) -> dict[str, Contents]:
    """Return the contents of compacted objects by key.

    Args:
        database: a database.
        files: the key of the object by file.

    Raises:
        PermanentError: an object is damaged, not podgpu's, or too new.
    """
    with keys_in_errors(files):
        metadata = read_metadata(database, files, (REPLACES_KEY, SERIALS_KEY))
    return {
        key: decode_contents(parse_compacted(key), metadata[path]) for path, key in files.items()
    }


def _overlaps(read: ReadContents, files: Mapping[Path, str]) -> frozenset[Path]:
    """Return the files with a serial that is in another file too."""
    compacted = {path: key for path, key in files.items() if isinstance(parse(key), CompactedKey)}
    contents = read(compacted)
    ranges: list[tuple[Origin, int, int, Path]] = []
    for path, key in files.items():
        found = contents[key] if key in contents else contents_of_raw([key])
        ranges += [
            (origin, first, last, path)
            for origin, each in found.serials.items()
            for first, last in each
        ]
    overlapping: set[Path] = set()
    # Of the ranges so far, the one that ends last.
    reaching: tuple[Origin, int, Path] | None = None
    for origin, first, last, path in sorted(ranges):
        if reaching is None or reaching[0] != origin or last > reaching[1]:
            longest = (origin, last, path)
        else:
            longest = reaching
        if reaching is not None and reaching[0] == origin and first <= reaching[1]:
            overlapping |= {path, reaching[2]}
        reaching = longest
    return frozenset(overlapping)


@contextmanager
def keys_in_errors(files: Mapping[Path, str]) -> Iterator[None]:
    """Replace the paths of copies in errors by the keys of their objects."""
    try:
        yield
    except ComponentError as error:
        text = str(error)
        for path, key in files.items():
            text = text.replace(str(path), key)
        if text == str(error):
            raise
        if isinstance(error, PermanentError):
            raise PermanentError(f"{text}; restore this object or move it away") from error
        raise TransientError(text) from error
