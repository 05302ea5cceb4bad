"""Lists the objects of an archive by cluster and day, and decides which of them are effective."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final, TypeAlias

from pipeline.archive.object_key import CLUSTERS, NODES, RawKey, encoded, parse
from pipeline.archive.object_store import Store
from pipeline.base.errors import TransientError

Group: TypeAlias = tuple[str, date]
"""A cluster and a UTC day."""

_ATTEMPTS: Final = 20


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

    Raw objects are listed first: what a compaction deletes before that, is in a compacted object
    that the second list shows.

    Args:
        store: the archive.
        clusters: names of the clusters to list; empty for all.
        wanted: which days to return.

    Raises:
        TransientError: the store fails, or its content changes faster than it can be listed.
        PermanentError: the store refuses the request.
    """
    groups: dict[Group, Objects] = {}
    foreign = []
    parts = [f"/{encoded(name)}" for name in sorted(clusters)] or [""]
    keys = [key for part in parts for key in store.keys(NODES + part)]
    for part in parts:
        keys += _compacted_keys(store, CLUSTERS + part)
    for text in keys:
        key = parse(text)
        if key is None:
            foreign.append(text)
        elif wanted(key.day):
            found = groups.setdefault((key.cluster, key.day), Objects())
            (found.raw if isinstance(key, RawKey) else found.compacted).append(text)
    return Listing(groups, tuple(foreign))


def _compacted_keys(store: Store, prefix: str) -> list[str]:
    """List compacted objects until two lists are equal.

    The list of a folder is not sorted, so one list may show neither an object nor the one that
    replaces it meanwhile.
    """
    found = sorted(store.keys(prefix))
    for _ in range(_ATTEMPTS):
        again = sorted(store.keys(prefix))
        if again == found:
            return found
        found = again
    raise TransientError(
        f"the archive {store.location} changes while it is listed: is it compacted all the time? "
        "Try again later"
    )


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
