"""What the source knows from one run to the next."""

from collections.abc import Mapping

from pipeline.model import Device
from sources.nvml.device_filter import DeviceFilter
from sources.nvml.pcie_counters import PcieTotals
from sources.nvml.sliding_counts import ClockEvents
from sources.nvml.xid_counts import XidCounts, XidLogThrottle


class DeviceHistory:
    """Outlives the runs of its source.

    Attributes:
        gpus: every physical GPU that was ever enumerated, by uuid: one that is gone is down.
        by_index: devices by index as they were last announced.
        down: uuids of GPUs that were last seen down.
        outage_reported: it has been told that all GPUs are down with the source, and nothing since.
        departing: uuids of GPUs that others stand in for, or that nobody asks for any more, until a
            last word was said of them.
        present_once: of which devices it was seen that they are there: what of them lacks now is
            lost.
        xids: the XID errors.
        clock_events: in how many samples each was there.
        pcie_totals: the bytes over PCIe.
        hidden: uuids of GPUs that nobody asked for: not even whether they are up is told.
        xid_log: which of them were logged.
    """

    def __init__(self) -> None:
        self.gpus: dict[str, Device] = {}
        self.by_index: dict[int, tuple[Device, ...]] = {}
        self.down: set[str] = set()
        self.outage_reported = False
        self.departing: list[str] = []
        self.present_once: DeviceFilter | None = None
        self.xids = XidCounts()
        self.clock_events = ClockEvents(0)
        self.pcie_totals = PcieTotals()
        self.hidden: set[str] = set()
        self.xid_log = XidLogThrottle()
        self._logged: set[tuple[str, str]] = set()

    def update(self, by_index: Mapping[int, tuple[Device, ...]], choice: DeviceFilter) -> None:
        """Remember the devices as they are now, and forget GPUs that were replaced.

        A GPU was replaced if it is gone, and another has both its index and its place on the bus.

        Args:
            by_index: the devices.
            choice: which of them are read.
        """
        told = self.gpus.keys() - self.hidden if self.outage_reported else frozenset()
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
        self.departing += (uuid for uuid in replaced if uuid not in self.hidden)
        self.gpus.update(present)
        self.hidden = {uuid for uuid, gpu in self.gpus.items() if not choice.has_gpu(gpu.index)}
        self.departing += sorted(self.hidden & told)

    def _forget(self, uuid: str) -> None:
        del self.gpus[uuid]
        self.down.discard(uuid)
        self.xids.forget(uuid)
        self.clock_events.forget(uuid)
        self.pcie_totals.forget(uuid)
        self.xid_log.forget(uuid)

    def counting_clock_events(self, length_ns: int) -> ClockEvents:
        """Return where they are counted over a window of that length."""
        if self.clock_events.length_ns != length_ns:
            self.clock_events = ClockEvents(length_ns)
        return self.clock_events

    def is_first(self, what: str, about: str) -> bool:
        """Whether this is said for the first time."""
        known = (what, about) in self._logged
        self._logged.add((what, about))
        return not known

    def describe(self, place: str) -> str:
        """Name a GPU by index and uuid; anything else by what it is."""
        gpu = self.gpus.get(place)
        return place if gpu is None else f"GPU {gpu.index} ({place})"
