"""The devices of the node: which are present, and which were present before."""

from collections import ChainMap
from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from pipeline.join.mig_placement import MigPlacements
from pipeline.model import Device, MigPlace

Described = TypeVar("Described", Device, MigPlace)


class Inventory:
    """The devices that all sources enumerate, merged.

    A physical GPU that disappears stays known as missing, unless another GPU is now at its PCI bus
    id, that is, in its slot: then it was replaced. A MIG instance that disappears is forgotten,
    since instances are created and destroyed on purpose.
    """

    def __init__(self) -> None:
        self._present: dict[str, dict[str, Device]] = {}
        self._ever_seen: dict[str, dict[str, Device]] = {}

    @property
    def is_enumerated(self) -> bool:
        """Whether any source has enumerated devices, even if there were none."""
        return bool(self._present)

    def replace(self, source: str, devices: tuple[Device, ...]) -> bool:
        """Replace the devices of a source; return whether they changed."""
        present = {device.uuid: device for device in devices}
        if self._present.get(source) == present:
            return False
        self._present[source] = present
        gpus = {uuid: device for uuid, device in present.items() if device.mig is None}
        self._ever_seen[source] = self._ever_seen.get(source, {}) | gpus
        self._forget_replaced()
        return True

    def remove(self, source: str) -> None:
        """Remove the devices of a source."""
        self._ever_seen.pop(source, None)
        self._present.pop(source, None)

    def devices(self, ranking: list[str], down: Collection[str] = ()) -> list[tuple[Device, bool]]:
        """Return every known device and whether it is present, in device order.

        Args:
            ranking: the sources, the most trusted first. A property that the first one does not
                report is taken from the next one; sources where the device is present come before
                sources where it was present.
            down: the sources that are down. For the profile of a MIG instance the other sources
                have precedence, since the ids of an instance are reused for one of another size.
        """
        descriptions = [
            (device, present)
            for table, present in ((self._present, True), (self._ever_seen, False))
            for source in ranking
            for device in table.get(source, {}).values()
        ]
        placements = MigPlacements(device for device, _ in descriptions)
        merged: dict[str, tuple[Device, bool]] = {}
        for device, present in descriptions:
            uuid = placements.canonical_uuid(device.uuid)
            known = merged.get(uuid)
            if known is None:
                named = device if uuid == device.uuid else replace(device, uuid=uuid)
                merged[uuid] = (named, present)
            elif known[0] != device:
                merged[uuid] = (_merge(known[0], device), known[1])
        for source in reversed(ranking):
            for device in () if source in down else self._present.get(source, {}).values():
                uuid = placements.canonical_uuid(device.uuid)
                known_mig = merged[uuid][0].mig
                if device.mig is not None and device.mig.profile and known_mig is not None:
                    mig = replace(known_mig, profile=device.mig.profile)
                    merged[uuid] = (replace(merged[uuid][0], mig=mig), True)
        return sorted(merged.values(), key=lambda entry: entry[0].order)

    def _forget_replaced(self) -> None:
        present = ChainMap(*self._present.values())
        occupied = {_slot(device) for device in present.values() if device.mig is None} - {""}
        for source, known in self._ever_seen.items():
            self._ever_seen[source] = {
                uuid: device
                for uuid, device in known.items()
                if uuid in present or _slot(device) not in occupied
            }


def _slot(device: Device) -> str:
    """Return the PCI bus id in lower case, for comparison; empty if unknown."""
    return device.pci_bus_id.lower()


def _merge(device: Device, other: Device) -> Device:
    """Return a device, with the properties that only the other description has added."""
    mig = device.mig
    if mig is not None and other.mig is not None:
        mig = _with_missing(mig, other.mig, "compute_instance_id", "profile", "index", "start")
    facts = tuple(sorted({**dict(other.facts), **dict(device.facts)}.items()))
    merged = _with_missing(device, other, "index", "minor", "pci_bus_id", "model", "driver")
    return replace(merged, mig=mig, facts=facts)


def _with_missing(known: Described, other: Described, *names: str) -> Described:
    """Return a description, with the values of another one for attributes that are unknown."""
    missing = [name for name in names if getattr(known, name) in {None, ""}]
    return replace(known, **{name: getattr(other, name) for name in missing})
