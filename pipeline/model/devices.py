"""GPUs and MIG instances."""

from dataclasses import dataclass


def placement_name(parent_uuid: str, profile: str, start: int) -> str:
    """Return `MigPlace.placement` of an instance that need not exist yet."""
    return f"MIG-{parent_uuid}/{profile}@{start}"


@dataclass(frozen=True, slots=True)
class MigPlace:
    """Where a MIG instance sits on its GPU.

    Attributes:
        parent_uuid: uuid of the physical GPU.
        gpu_instance_id: NVML's GPU instance id (GI), unique on the parent.
        compute_instance_id: NVML's compute instance id (CI), unique in its GPU instance; None where
            the source knows the GPU instance alone.
        profile: the profile's name, such as `1g.10gb`.
        index: NVML's index of the instance on the parent, counted from 0; None when unknown.
        start: the first memory slice of the parent that the GPU instance has, counted from 0; None
            when unknown.
    """

    parent_uuid: str
    gpu_instance_id: int
    compute_instance_id: int | None
    profile: str
    index: int | None = None
    start: int | None = None

    @property
    def placement(self) -> str:
        """Name the instance by its profile and its place in the parent's memory.

        `MIG-<GPU>/<profile>@<start>`; empty where one of them is unknown. At any time at most one
        GPU instance has this name.
        """
        if self.start is None or not self.profile:
            return ""
        return placement_name(self.parent_uuid, self.profile, self.start)

    @property
    def name(self) -> str:
        """The uuid of an instance whose uuid isn't known: drivers before R470 wrote it so."""
        whole = f"MIG-{self.parent_uuid}/{self.gpu_instance_id}"
        ci = self.compute_instance_id
        return whole if ci is None else f"{whole}/{ci}"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Device:
    """A physical GPU or a MIG instance, as the driver names it.

    A MIG instance carries its parent's index, minor, PCI bus id and model: it has none of its own.
    Index, minor and position on the board are three different numberings; none implies another.

    Attributes:
        uuid: `GPU-...` or `MIG-...`, the identity of the device everywhere in podgpu. A source that
            knows of a MIG instance only where it is writes `MigPlace.name`, and the join finds the
            instance.
        index: NVML's index of the physical GPU; None where the driver gives none.
        minor: N of `/dev/nvidiaN` of the physical GPU; None where the driver gives none.
        pci_bus_id: as NVML writes it, `00000000:65:00.0`; empty when unknown.
        model: product name of the physical GPU; empty when unknown.
        driver: version of the kernel driver; empty when unknown.
        mig: the place on the parent for a MIG instance, None for a physical GPU.
        facts: texts about the board that never change, by name of the field (serial, versions of
            its firmware, ...), sorted; a MIG instance has its parent's.
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
        """Uuid of the physical GPU: the parent's for a MIG instance, else its own."""
        return self.uuid if self.mig is None else self.mig.parent_uuid

    @property
    def order(self) -> tuple[int, str, int, int, str]:
        """Sort key: by index, a GPU before its MIG instances, those by GI and CI."""
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
