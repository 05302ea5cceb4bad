"""Which devices there are, and which there were."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from pipeline.join.mig_placement import MigPlacements
from pipeline.model import Device


class Inventory:
    """The devices that each source enumerates, as one set.

    A physical GPU that was enumerated once stays known when it vanishes: it is expected, unless
    another one now sits at its PCI bus id, and so in its slot: then it was replaced. A MIG instance
    that vanishes is gone, since instances come and go on purpose.
    """

    def __init__(self) -> None:
        self._present: dict[str, dict[str, Device]] = {}
        self._ever_seen: dict[str, dict[str, Device]] = {}

    @property
    def is_enumerated(self) -> bool:
        """Whether any source has enumerated devices, be it none at all."""
        return bool(self._present)

    def replace(self, source: str, devices: tuple[Device, ...]) -> bool:
        """Take the whole enumeration of a source; return whether it differs from the last."""
        present = {device.uuid: device for device in devices}
        if self._present.get(source) == present:
            return False
        self._present[source] = present
        known = self._ever_seen.setdefault(source, {})
        for device in devices:
            if device.mig is None:
                known[device.uuid] = device
        self._forget_replaced()
        return True

    def remove(self, source: str) -> bool:
        """Forget a source; return whether it had enumerated anything."""
        self._ever_seen.pop(source, None)
        return self._present.pop(source, None) is not None

    def devices(self, ranking: list[str], down: Collection[str] = ()) -> list[tuple[Device, bool]]:
        """Return every known device with whether it is present, in device order.

        Args:
            ranking: sources, the most trusted first. What the first doesn't know of a device is
                taken from the next that does, those where the device is present before the others.
            down: those of them that are down: of a MIG instance's profile the others are believed
                before them, since the ids of an instance are used again for one of another size.
        """
        said = [
            (device, present)
            for table, present in ((self._present, True), (self._ever_seen, False))
            for source in ranking
            for device in table.get(source, {}).values()
        ]
        places = MigPlacements(device for device, _ in said)
        merged: dict[str, tuple[Device, bool]] = {}
        for device, present in said:
            uuid = places.canonical_uuid(device.uuid)
            known = merged.get(uuid)
            if known is None:
                named = device if uuid == device.uuid else replace(device, uuid=uuid)
                merged[uuid] = (named, present)
            elif known[0] != device:
                merged[uuid] = (_merge(known[0], device), known[1])
        for source in reversed(ranking):
            for device in () if source in down else self._present.get(source, {}).values():
                uuid = places.canonical_uuid(device.uuid)
                if device.mig is not None and device.mig.profile:
                    merged[uuid] = (_with_profile(merged[uuid][0], device.mig.profile), True)
        return sorted(merged.values(), key=lambda entry: entry[0].order)

    def _forget_replaced(self) -> None:
        present: set[str] = set()
        taken: set[str] = set()
        for devices in self._present.values():
            present.update(devices)
            taken.update(_slot(device) for device in devices.values() if device.mig is None)
        taken.discard("")
        for known in self._ever_seen.values():
            gone = [
                uuid
                for uuid, device in known.items()
                if uuid not in present and _slot(device) in taken
            ]
            for uuid in gone:
                del known[uuid]


def _slot(device: Device) -> str:
    """Return the PCI bus id, to be compared; empty when unknown."""
    return device.pci_bus_id.lower()


def _with_profile(device: Device, profile: str) -> Device:
    mig = device.mig
    if mig is None or mig.profile == profile:
        return device
    return replace(device, mig=replace(mig, profile=profile))


def _merge(device: Device, other: Device) -> Device:
    """Return a device with what only the other description knows of it."""
    mig = device.mig
    if mig is not None and other.mig is not None:
        ci, index, start = mig.compute_instance_id, mig.index, mig.start
        mig = replace(
            mig,
            compute_instance_id=other.mig.compute_instance_id if ci is None else ci,
            profile=mig.profile or other.mig.profile,
            index=other.mig.index if index is None else index,
            start=other.mig.start if start is None else start,
        )
    return replace(
        device,
        index=other.index if device.index is None else device.index,
        minor=other.minor if device.minor is None else device.minor,
        pci_bus_id=device.pci_bus_id or other.pci_bus_id,
        model=device.model or other.model,
        driver=device.driver or other.driver,
        mig=mig,
        facts=tuple(sorted({**dict(other.facts), **dict(device.facts)}.items())),
    )


def numbered_schemes(devices: Iterable[Device]) -> frozenset[str]:
    """Return the schemes, `minor` and `index`, in which every GPU has a number."""
    gpus = [device for device in devices if device.mig is None]
    every = {"minor": [gpu.minor for gpu in gpus], "index": [gpu.index for gpu in gpus]}
    return frozenset(scheme for scheme, numbers in every.items() if None not in numbers)
