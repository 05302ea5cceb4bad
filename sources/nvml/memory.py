"""What the source knows from one run to the next."""

from collections.abc import Mapping

from pipeline.model import Device
from sources.nvml.xids import Sayings, XidCounts


class Memory:
    """Outlives the runs of its source.

    Attributes:
        gpus: every physical GPU that was ever enumerated, by uuid: one that is gone is down.
        by_index: devices by index as they were last announced.
        down: uuids of GPUs that were last seen down.
        out: it has been told that all GPUs are down with the source, and nothing since.
        replaced: uuids of GPUs that others stand in for, until a last word was said of them.
        xids: the XID errors.
        sayings: which of them were logged.
    """

    def __init__(self) -> None:
        self.gpus: dict[str, Device] = {}
        self.by_index: dict[int, tuple[Device, ...]] = {}
        self.down: set[str] = set()
        self.out = False
        self.replaced: list[str] = []
        self.xids = XidCounts()
        self.sayings = Sayings()
        self._said: set[tuple[str, str]] = set()

    def note(self, by_index: Mapping[int, tuple[Device, ...]]) -> None:
        """Remember the devices as they are now, and forget GPUs that were replaced.

        A GPU was replaced if it is gone, and another has both its index and its place on the bus.
        """
        self.by_index = dict(by_index)
        present = {devices[0].uuid: devices[0] for devices in by_index.values()}
        taken = {(gpu.index, gpu.pci_bus_id) for gpu in present.values() if gpu.pci_bus_id}
        replaced = [
            uuid
            for uuid, gpu in self.gpus.items()
            if uuid not in present and (gpu.index, gpu.pci_bus_id) in taken
        ]
        for uuid in replaced:
            self._forget(uuid)
        self.replaced += replaced
        self.gpus.update(present)

    def _forget(self, uuid: str) -> None:
        del self.gpus[uuid]
        self.down.discard(uuid)
        self.xids.forget(uuid)
        self.sayings.forget(uuid)

    def first_time(self, what: str, about: str) -> bool:
        """Whether this is said for the first time."""
        known = (what, about) in self._said
        self._said.add((what, about))
        return not known

    def describe(self, place: str) -> str:
        """Name a GPU by index and uuid; anything else by what it is."""
        gpu = self.gpus.get(place)
        return place if gpu is None else f"GPU {gpu.index} ({place})"
