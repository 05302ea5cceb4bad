"""Devices that no scheduler gives out: their device plugin or DRA driver does.

An author who names such a device in an annotation names what isn't his scheduler's to give.

Of each device the last word of a source counts. A plugin withdraws a device that is ill, and all of
them while it restarts; slices are deleted while a driver is away; a kubelet may fall silent. None
of that is a word: the device is no scheduler's until its source offers it by a placeholder, or
leaves.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from pipeline.join.device_index import DeviceIndex
from pipeline.join.trust_rules import COUNTING
from pipeline.model import DeviceAliasesReplaced, RawDeviceId, ResourcesAdvertised
from pipeline.model.plugin_ids import without_replica

K = TypeVar("K")
V = TypeVar("V")

_MOST: Final = 20_000
"""How many devices of one source are kept in mind: those that were told last."""


class _Told(NamedTuple):
    """An id, when the source last told of it, and whether ids of its resource only count."""

    raw: RawDeviceId
    time: int
    counts: bool


class ClosedDevices:
    """The devices that were offered by ids of their own."""

    def __init__(self) -> None:
        self._offered: dict[str, dict[str, _Told]] = {}
        self._published: dict[str, dict[str, None]] = {}
        self._time = 0
        self._found: tuple[DeviceIndex, frozenset[str]] | None = None

    def offer(self, source: str, event: ResourcesAdvertised) -> None:
        """Take in what the kubelet offers."""
        self._time += 1
        ids = self._offered.setdefault(source, {})
        for offer in event.resources:
            counts = offer.resource in COUNTING
            for raw in offer.devices:
                # Of a device's replicas one says it all.
                _keep(ids, without_replica(raw.text), _Told(raw, self._time, counts))
        self._found = None

    def publish(self, source: str, told: DeviceAliasesReplaced) -> None:
        """Take in which devices DRA drivers have."""
        targets = self._published.setdefault(source, {})
        for raw, target in told.aliases:
            if raw.scheme == "dra":
                _keep(targets, target, None)
        self._found = None

    def remove(self, source: str) -> None:
        """Forget a source."""
        self._offered.pop(source, None)
        self._published.pop(source, None)
        self._found = None

    def devices(self, index: DeviceIndex) -> frozenset[str]:
        """Return their uuids; of a MIG instance that of the instance alone."""
        if self._found is None or self._found[0] is not index:
            closed = {
                found.uuid
                for targets in self._published.values()
                for target in targets
                if (found := index.target(target)) is not None
            }
            for ids in self._offered.values():
                closed |= _really_offered(ids.values(), index)
            self._found = (index, frozenset(closed))
        return self._found[1]


def _really_offered(ids: Iterable[_Told], index: DeviceIndex) -> set[str]:
    """Return the devices that were last told of by an id of their own."""
    last: dict[str, tuple[int, bool]] = {}
    for told in ids:
        found = index.resolve(told.raw)
        if found is not None:
            real = not (told.counts or found.placeholder)
            last[found.uuid] = max((told.time, real), last.get(found.uuid, (0, False)))
    return {uuid for uuid, (_, real) in last.items() if real}


def _keep(table: dict[K, V], key: K, value: V) -> None:
    """Put a value at the end, and let go of the oldest if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _MOST:
        del table[next(iter(table))]
