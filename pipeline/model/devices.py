"""GPUs and MIG instances."""

import re
from dataclasses import dataclass
from typing import Final

_SLICES: Final = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")


def placement_name(parent_uuid: str, profile: str, start: int) -> str:
    """Return `MigPlace.placement` of an instance, which may not exist yet."""
    return f"MIG-{parent_uuid}/{profile}@{start}"


def compute_slices(profile: str) -> int | None:
    """Return how many compute slices a MIG profile has; None if unknown.

    `3g.40gb` has three; `1c.3g.40gb` is one slice of a GPU instance of three.
    """
    found = _SLICES.search(profile)
    return (int(found[1] or found[2]) or None) if found else None


@dataclass(frozen=True, slots=True)
class MigPlace:
    """Where a MIG instance is on its GPU.

    Attributes:
        parent_uuid: uuid of the physical GPU.
        gpu_instance_id: NVML's GPU instance id (GI), unique on the parent.
        compute_instance_id: NVML's compute instance id (CI), unique in its GPU instance; None where
            the source knows only the GPU instance.
        profile: name of the profile, such as `1g.10gb`.
        index: NVML's index of the instance on the parent, counted from 0; None if unknown.
        start: first memory slice of the GPU instance on the parent, counted from 0; None if
            unknown.
    """

    parent_uuid: str
    gpu_instance_id: int
    compute_instance_id: int | None
    profile: str
    index: int | None = None
    start: int | None = None

    @property
    def placement(self) -> str:
        """Name of the instance by profile and first memory slice: `MIG-<GPU>/<profile>@<start>`.

        Empty if the profile or the slice is unknown. Only one GPU instance has this name at a time.
        """
        if self.start is None or not self.profile:
            return ""
        return placement_name(self.parent_uuid, self.profile, self.start)

    @property
    def name(self) -> str:
        """Id of an instance whose uuid is unknown, in the form of drivers before R470."""
        whole = f"MIG-{self.parent_uuid}/{self.gpu_instance_id}"
        ci = self.compute_instance_id
        return whole if ci is None else f"{whole}/{ci}"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Device:
    """A physical GPU or a MIG instance, as the driver names it.

    A MIG instance has the index, minor number, PCI bus id and model of its parent, because it has
    none itself. Index, minor number and position on the board are three independent numberings.

    Attributes:
        uuid: `GPU-...` or `MIG-...`, the identity of the device everywhere in podgpu. A source that
            knows only the place of a MIG instance writes `MigPlace.name`, and the join finds the
            instance.
        index: NVML's index of the physical GPU; None where the driver reports none.
        minor: N of `/dev/nvidiaN` of the physical GPU; None where the driver reports none.
        pci_bus_id: PCI bus id as NVML writes it, `00000000:65:00.0`; empty if unknown.
        model: product name of the physical GPU; empty if unknown.
        driver: version of the kernel driver; empty if unknown.
        mig: place of a MIG instance on its parent; None for a physical GPU.
        facts: texts about the board that never change, by name of the field (serial number,
            firmware versions, ...), sorted; a MIG instance has those of its parent.
    """

    uuid: str
    index: int | None = None
    minor: int | None = None
    pci_bus_id: str = ""
    model: str = ""
    driver: str = ""
    mig: MigPlace | None = None
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def gpu_uuid(self) -> str:
        """Uuid of the physical GPU: that of the parent for a MIG instance."""
        return self.uuid if self.mig is None else self.mig.parent_uuid

    @property
    def order(self) -> tuple[int, str, int, int, str]:
        """Sort key: by index; a GPU before its MIG instances; instances by GI and CI."""
        index = self.index if self.index is not None else 1 << 30
        if self.mig is None:
            return (index, self.uuid, -1, -1, self.uuid)
        place = self.mig
        return (
            index,
            place.parent_uuid,
            place.gpu_instance_id,
            -1 if place.compute_instance_id is None else place.compute_instance_id,
            self.uuid,
        )
