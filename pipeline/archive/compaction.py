"""Compaction: merges the objects of a cluster and day into one, then deletes what it contains.

Rules that make it safe against SIGKILL at any time, several compactions at once, and requests that
take effect late or twice:

* An object is deleted only after an object with all its raw keys was written and is there.
* A compacted object is only ever replaced by one with more raw keys.

So, as soon as the rows of a raw object are in a compacted object, they are in some compacted object
at all times. docs/archive-format.md explains the consequences for readers.
"""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from pipeline.archive.object_contents import Contents, contents_of_raw, joined_contents
from pipeline.archive.object_key import CompactedKey
from pipeline.archive.object_listing import Group, Objects, effective, list_objects
from pipeline.archive.object_store import Store
from pipeline.base.errors import PermanentError

_ROUNDS: Final = 3
_AT_ONCE: Final = 500
"""Number of raw objects that are copied and merged in one step."""


class Merge(Protocol):
    """Merges the files of objects into one. All methods block and raise `ComponentError`s."""

    def contents(self, files: Mapping[Path, str]) -> dict[str, Contents]:
        """Return the contents of compacted objects by key.

        Args:
            files: the key of the object by file.
        """

    def combine(self, files: Mapping[Path, str], part: Path) -> None:
        """Write the rows of files to a new file, and check that their rows are those they state.

        Args:
            files: the key of the object by file.
            part: the new file.
        """

    def finish(
        self, parts: Sequence[Path], contents: Mapping[str, Contents], whole: Contents, target: Path
    ) -> None:
        """Write the rows of parts to a new file, each row once, with the metadata.

        Args:
            parts: files that `combine` wrote.
            contents: the contents by key of all objects that are in the parts.
            whole: these contents, joined.
            target: the new file.
        """


@dataclass(frozen=True, slots=True)
class CompactedDay:
    """What a compaction did for a cluster and day.

    Attributes:
        cluster: name of the cluster.
        day: the UTC day.
        key: the object that now has all rows.
        merged: number of raw and compacted objects whose rows were merged into it; 0 if it had all
            rows already.
        deleted: number of objects that were deleted.
        rows: number of rows in it.
    """

    cluster: str
    day: date
    key: str
    merged: int
    deleted: int
    rows: int


@dataclass(slots=True)
class Summary:
    """What a compaction did.

    Attributes:
        days: the clusters and days that were compacted.
        refused: for each cluster and day that cannot be merged, why.
        unfinished: number of clusters and days that others changed at the same time.
        foreign: keys that are not podgpu's.
    """

    days: list[CompactedDay] = field(default_factory=list)
    refused: dict[Group, str] = field(default_factory=dict)
    unfinished: int = 0
    foreign: tuple[str, ...] = ()


class _ChangedError(Exception):
    """Another compaction has replaced an object."""


class _RefusedError(Exception):
    """The objects of this cluster and day cannot be merged."""


def compact(
    store: Store,
    merge: Merge,
    folder: Path,
    *,
    closed: Callable[[date], bool],
    clusters: Collection[str] = (),
    done: Callable[[CompactedDay], None] = lambda _: None,
) -> Summary:
    """Compact the closed days of an archive.

    Args:
        store: the archive.
        merge: merges the files.
        folder: an existing folder for temporary files. It needs space for the largest day, three
            times.
        closed: whether a day is closed. If objects come later, the next compaction merges them.
        clusters: names of the clusters; empty for all.
        done: is called after each cluster and day.

    Raises:
        TransientError: the store or a disk fails. What is done stays; the next compaction
            continues.
        PermanentError: the store refuses a request.
    """
    summary = Summary()
    for _ in range(_ROUNDS):
        listing = list_objects(store, clusters, closed)
        summary.unfinished, summary.foreign = 0, listing.foreign
        for group, objects in sorted(listing.groups.items(), key=lambda item: item[0]):
            if objects.is_settled or group in summary.refused:
                continue
            try:
                with TemporaryDirectory(dir=folder, prefix="podgpu-") as work:
                    day = _Work(store, merge, Path(work)).compact(group, objects)
            except _ChangedError:
                summary.unfinished += 1
            except _RefusedError as error:
                summary.refused[group] = str(error)
            else:
                summary.days.append(day)
                done(day)
        if not summary.unfinished:
            break
    return summary


@dataclass(frozen=True, slots=True)
class _Work:
    """The compaction of one cluster and day, with a folder for its files."""

    store: Store
    merge: Merge
    folder: Path

    def compact(self, group: Group, objects: Objects) -> CompactedDay:
        """Merge the objects, and delete those that are contained in another one.

        Raises:
            _ChangedError: another compaction has replaced an object.
            _RefusedError: the objects cannot be merged.
        """
        copies = self._copies(objects.compacted, "compacted")
        try:
            sets = self.merge.contents(copies)
        except PermanentError as error:
            raise _RefusedError(str(error)) from error
        raw, largest = effective(objects.raw, {key: each.replaces for key, each in sets.items()})
        contents = {key: sets[key] for key in largest}
        contents |= {key: contents_of_raw([key]) for key in raw}
        whole = joined_contents(contents.values())
        key = str(CompactedKey.of(*group, whole.replaces))
        merged = 0
        if key not in contents:
            compacted = {path: each for path, each in copies.items() if each in contents}
            parts = self._parts(compacted, raw)
            target = self.folder / "whole.parquet"
            try:
                self.merge.finish(parts, contents, whole, target)
            except PermanentError as error:
                raise _RefusedError(str(error)) from error
            self.store.put(key, target)
            merged = len(contents)
        obsolete = [each for each in objects.raw if each in whole.replaces]
        obsolete += [each for each in objects.compacted if each != key]
        # Someone else may have removed it; what it replaces is then needed.
        if not self.store.exists(key):
            raise _ChangedError
        self.store.delete(obsolete)
        return CompactedDay(*group, key, merged, len(obsolete), whole.rows)

    def _parts(self, compacted: Mapping[Path, str], raw: Sequence[str]) -> list[Path]:
        """Return files with the rows of all objects, made of a limited number of objects each."""
        parts = [self._combined(compacted, 0)] if compacted else []
        for start in range(0, len(raw), _AT_ONCE):
            files = self._copies(raw[start : start + _AT_ONCE], "raw")
            parts.append(self._combined(files, len(parts)))
            shutil.rmtree(self.folder / "raw")
        return parts

    def _combined(self, files: Mapping[Path, str], number: int) -> Path:
        part = self.folder / f"part-{number:06}.parquet"
        try:
            self.merge.combine(files, part)
        except PermanentError as error:
            raise _RefusedError(str(error)) from error
        return part

    def _copies(self, keys: Sequence[str], name: str) -> dict[Path, str]:
        """Copy objects to a new folder; return their keys by file.

        Raises:
            _ChangedError: an object does not exist any more.
        """
        folder = self.folder / name
        folder.mkdir()
        found = self.store.get(keys, folder)
        if len(found) < len(keys):
            raise _ChangedError
        return {path: key for key, path in found.items()}
