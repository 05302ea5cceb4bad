"""Number of devices of each extended resource: present, advertised, allocated."""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Final

from pipeline.join.device_index import DeviceIndex
from pipeline.model import Device, Instant, ResourceCount, ResourcesAdvertised

_MIG: Final = re.compile(r"/mig-([^/]+?)(?:\.shared)?$")
_GPU: Final = re.compile(r"/[^/]*gpu(?:\.shared)?$")


class AdvertisedResources:
    """The extended resources that the kubelet advertises, by source.

    A resource that was advertised once is shown until its source is removed: when a device plugin
    withdraws its last GPU, that must be visible as 0.
    """

    def __init__(self) -> None:
        self._advertised: dict[str, tuple[ResourcesAdvertised, int]] = {}
        self._seen: dict[str, set[str]] = {}
        self._offered: dict[str, set[str]] = {}
        self._index: DeviceIndex | None = None

    def replace(self, source: str, event: ResourcesAdvertised, at: Instant) -> bool:
        """Replace the resources of a source; return whether they changed."""
        before = self._advertised.get(source)
        self._advertised[source] = (event, at.mono_ns + event.good_for_ns)
        if before is not None and before[0].resources == event.resources:
            return False
        self._index = None
        seen = self._seen.setdefault(source, set())
        seen.update(offered.resource for offered in event.resources)
        return True

    def expire(self, now_ns: int) -> bool:
        """Remove expired reports; return whether there were any."""
        expired = [source for source, (_, end) in self._advertised.items() if end < now_ns]
        for source in expired:
            del self._advertised[source]
            self._index = None
        return bool(expired)

    def remove(self, source: str) -> None:
        """Remove the reports of a source, and the resources that only it has advertised."""
        self._advertised.pop(source, None)
        self._seen.pop(source, None)
        self._index = None

    def count(
        self,
        devices: Iterable[Device],
        index: DeviceIndex,
        allocated: Mapping[str, set[str]],
        *,
        active_sources: Container[str],
    ) -> dict[str, ResourceCount]:
        """Return the counts by resource, sorted.

        Args:
            devices: the devices that are present.
            index: resolves ids to devices of the node.
            allocated: by resource, what the kubelet allocated: uuids, and ids that match no device.
            active_sources: the sources with valid claims.
        """
        offered = self._resolved(index)
        present = list(devices)
        names = set(allocated).union(offered, *self._seen.values())
        is_reported = bool(self._advertised)
        claims_known = any(source in active_sources for source in self._seen)
        return {
            name: ResourceCount(
                present=_present(name, offered.get(name, set()) | allocated_ids, present),
                advertised=len(offered.get(name, ())) if is_reported else None,
                allocated=len(allocated_ids) if claims_known or allocated_ids else None,
            )
            for name in sorted(names)
            for allocated_ids in [allocated.get(name, set())]
        }

    def _resolved(self, index: DeviceIndex) -> dict[str, set[str]]:
        """Return the advertised devices by resource; recalculated only when something changed."""
        if self._index is not index:
            self._offered, self._index = {}, index
            for event, _ in self._advertised.values():
                for offer in event.resources:
                    ids = self._offered.setdefault(offer.resource, set())
                    for raw in offer.devices:
                        found = index.resolve(raw)
                        ids.add(raw.text if found is None else found.uuid)
        return self._offered


def _present(resource: str, uuids: set[str], devices: list[Device]) -> int:
    """Return the number of present devices of the kind that the resource consists of.

    The name of the resource shows the profile of MIG instances; else its devices show whether they
    are MIG instances. A GPU with MIG instances cannot be allocated as a whole.
    """
    if match := _MIG.search(resource):
        profile = match[1].replace(".me", "+me")
        return sum(device.mig is not None and device.mig.profile == profile for device in devices)
    instances = [device for device in devices if device.mig is not None]
    if any(device.uuid in uuids for device in instances):
        return len(instances)
    partitioned = {device.gpu_uuid for device in instances}
    whole = [device for device in devices if device.mig is None and device.uuid not in partitioned]
    known = any(device.uuid in uuids for device in whole)
    return len(whole) if known or _GPU.search(resource) else 0
