"""Plugin-managed devices: a device plugin or a DRA driver allocates them, and no scheduler.

An annotation that names such a device has no effect, since the scheduler cannot allocate it.

The last report of a source about a device counts, also after the device disappears from it. A
plugin withdraws a device that is unhealthy, and all of them while it restarts; slices are deleted
while a driver is away; a kubelet may be silent. The device stays plugin-managed until its source
offers it by a placeholder, or is removed.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from pipeline.base.bounded_dict import set_last
from pipeline.join.device_index import DeviceIndex
from pipeline.join.trust_rules import COUNT_ONLY_RESOURCES
from pipeline.model import DeviceAliasesReplaced, RawDeviceId, ResourcesAdvertised
from pipeline.model.plugin_ids import without_replica

_MAX_DEVICES: Final = 20_000
"""How many devices of one source are remembered: those that were reported last."""


_ReportedId: TypeAlias = tuple[RawDeviceId, int, bool]
"""An id, the number of the last report with it, and whether the ids of its resource only count."""


class PluginManagedDevices:
    """The devices that sources reported under their real ids."""

    def __init__(self) -> None:
        self._advertised: dict[str, dict[str, _ReportedId]] = {}
        self._published: dict[str, dict[str, None]] = {}
        self._sequence = 0
        self._cached: tuple[DeviceIndex, frozenset[str]] | None = None

    def update_resources(self, source: str, event: ResourcesAdvertised) -> None:
        """Record the devices that the kubelet advertises."""
        self._sequence += 1
        ids = self._advertised.setdefault(source, {})
        for offer in event.resources:
            count_only = offer.resource in COUNT_ONLY_RESOURCES
            for raw in offer.devices:
                # One replica of a device is enough.
                reported = (raw, self._sequence, count_only)
                set_last(ids, without_replica(raw.text), reported, _MAX_DEVICES)
        self._cached = None

    def update_aliases(self, source: str, event: DeviceAliasesReplaced) -> None:
        """Record the devices of DRA drivers."""
        targets = self._published.setdefault(source, {})
        for raw, target in event.aliases:
            if raw.scheme == "dra":
                set_last(targets, target, None, _MAX_DEVICES)
        self._cached = None

    def remove(self, source: str) -> None:
        """Remove the reports of a source."""
        self._advertised.pop(source, None)
        self._published.pop(source, None)
        self._cached = None

    def devices(self, index: DeviceIndex) -> frozenset[str]:
        """Return the uuids of the devices; for a MIG instance only its own, not its GPU's."""
        if self._cached is None or self._cached[0] is not index:
            plugin_managed = {
                found.uuid
                for targets in self._published.values()
                for target in targets
                if (found := index.alias_target(target)) is not None
            }
            for ids in self._advertised.values():
                plugin_managed |= _offered_by_real_id(ids.values(), index)
            self._cached = (index, frozenset(plugin_managed))
        return self._cached[1]


def _offered_by_real_id(ids: Iterable[_ReportedId], index: DeviceIndex) -> set[str]:
    """Return the devices that were last reported under a real id."""
    last: dict[str, tuple[int, bool]] = {}
    for raw, sequence, count_only in ids:
        found = index.resolve(raw)
        if found is not None:
            real = not (count_only or found.is_placeholder)
            last[found.uuid] = max((sequence, real), last.get(found.uuid, (0, False)))
    return {uuid for uuid, (_, real) in last.items() if real}
