"""Lists the objects of an archive by cluster and day, and decides which of them are effective."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TypeAlias

from pipeline.archive.object_key import CLUSTERS, NODES, RawKey, encoded, parse
from pipeline.archive.object_store import Store

Group: TypeAlias = tuple[str, date]
"""A cluster and a UTC day."""


@dataclass(slots=True)
class Objects:
    """The keys of one cluster and day.

    Attributes:
        raw: keys of raw objects.
        compacted: keys of compacted objects.
    """

    raw: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether one compacted object has all rows, so that nothing has to be decided."""
        return len(self.compacted) == 1 and not self.raw


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in an archive.

    Attributes:
        groups: the objects by cluster and day.
        foreign: keys below the archive's prefixes that are not podgpu's. They are ignored.
    """

    groups: Mapping[Group, Objects]
    foreign: tuple[str, ...]


def list_objects(
    store: Store,
    clusters: Collection[str] = (),
    wanted: Callable[[date], bool] = lambda _: True,
) -> Listing:
    """List an archive.

    Raw objects are listed first: if a compaction has deleted one before, the list of compacted
    objects shows an object with its rows. That list may be read in pages while compactions replace
    objects. It never misses both an object and its replacement: a store that lists in pages lists
    in order, and the replacement has a later key; the list of a small folder is read at once.

    Args:
        store: the archive.
        clusters: names of the clusters to list; empty for all.
        wanted: which days to return.

    Raises:
        TransientError: the store fails.
        PermanentError: the store refuses the request.
    """
    groups: dict[Group, Objects] = {}
    foreign = []
    parts = [f"/{encoded(name)}" for name in sorted(clusters)] or [""]
    keys = [key for root in (NODES, CLUSTERS) for part in parts for key in store.keys(root + part)]
    for text in keys:
        key = parse(text)
        if key is None:
            foreign.append(text)
        elif wanted(key.day):
            found = groups.setdefault((key.cluster, key.day), Objects())
            (found.raw if isinstance(key, RawKey) else found.compacted).append(text)
    return Listing(groups, tuple(foreign))


def effective(
    raw: Collection[str], sets: Mapping[str, frozenset[str]]
) -> tuple[list[str], list[str]]:
    """Return the raw and the compacted keys that together have each row of a cluster and day.

    Args:
        raw: keys of the raw objects.
        sets: sets of raw keys by key of the compacted object. Different keys have different sets.

    Returns:
        The raw objects that are in no set, and the compacted objects whose set is not a part of
        another set.
    """
    largest: list[str] = []
    for key in sorted(sets, key=lambda each: len(sets[each]), reverse=True):
        if not any(sets[key] < sets[other] for other in largest):
            largest.append(key)
    known = frozenset().union(*(sets[key] for key in largest))
    return [key for key in raw if key not in known], sorted(largest)
