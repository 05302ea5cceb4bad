"""State that outlives the runs of the source: devices, counters, threads, logged errors."""

from collections.abc import Mapping

from pipeline.component.xid_rate_limit import PendingXids
from pipeline.model import Device, XidReport
from sources.nvml.device_filter import DeviceFilter
from sources.nvml.event_counts import ClockEvents, XidCounts
from sources.nvml.library import Library
from sources.nvml.process_owners import ProcessLookup
from sources.nvml.topology_readings import TopologyReadings
from sources.nvml.worker_pool import WorkerPool
from sources.nvml.xid_watch import XidWatch

_FIRST_DELAY, _MAX_DELAY = 5.0, 300.0  # seconds


class NvmlState:
    """Everything that must survive a reload of the configuration.

    Attributes:
        nvml: the library, initialised or not.
        workers: the threads that call NVML, including those that hang.
        xid_watch: the thread that waits for XID errors; it may have ended.
        xid_reports: XID errors that are not reported yet.
        topology: how the GPUs are connected.
        process_lookup: which containers the processes belong to.
        attempts: how many retries were scheduled since a GPU last responded.
        gpus: every physical GPU that was ever enumerated, by uuid; a missing one is down.
        by_index: devices by index as they were last announced.
        down: uuids of GPUs that were down at the last visit.
        outage_reported: whether the last readings reported all GPUs as down with the source.
        departing: uuids of GPUs that were replaced or are no longer included, until their last
            reading is emitted.
        present_once: the value of the option `devices` whose devices were all seen once. A device
            of it that is missing now was lost since.
        xids: the XID errors.
        clock_events: in how many samples each clock event was active, and how often it started.
        pcie_totals: the bytes over PCIe so far, by uuid and rate.
        hidden: uuids of GPUs that the option `devices` excludes: not even `gpu_up` is reported.
        unwatched: uuids of GPUs for which podgpu logged that it cannot watch XID errors; an empty
            text stands for all GPUs.
    """

    def __init__(self) -> None:
        self.nvml = Library()
        self.workers = WorkerPool(self.describe)
        self.xid_watch: XidWatch | None = None
        self.xid_reports: PendingXids[XidReport] = PendingXids()
        self.topology = TopologyReadings()
        self.process_lookup = ProcessLookup()
        self.attempts = 0
        self.gpus: dict[str, Device] = {}
        self.by_index: dict[int, tuple[Device, ...]] = {}
        self.down: set[str] = set()
        self.outage_reported = False
        self.departing: list[str] = []
        self.present_once: DeviceFilter | None = None
        self.xids = XidCounts()
        self.clock_events = ClockEvents(0)
        self.pcie_totals: dict[str, dict[str, float]] = {}
        self.hidden: set[str] = set()
        self.unwatched: set[str] = set()

    def update(self, by_index: Mapping[int, tuple[Device, ...]], choice: DeviceFilter) -> None:
        """Store the current devices, forget replaced GPUs, and note GPUs for a last reading.

        A GPU was replaced if it is missing and another one has its index and its PCI bus id.

        Args:
            by_index: the devices.
            choice: which of them are read.
        """
        reported = self.gpus.keys() - self.hidden if self.outage_reported else frozenset()
        self.by_index = dict(by_index)
        present = {devices[0].uuid: devices[0] for devices in by_index.values()}
        taken = {(gpu.index, gpu.pci_bus_id) for gpu in present.values() if gpu.pci_bus_id}
        replaced = [
            uuid
            for uuid, gpu in self.gpus.items()
            if uuid not in present and (gpu.index, gpu.pci_bus_id) in taken
        ]
        for uuid in replaced:
            del self.gpus[uuid]
            self.down.discard(uuid)
            self.xids.forget(uuid)
            self.clock_events.forget(uuid)
            self.pcie_totals.pop(uuid, None)
        self.departing += (uuid for uuid in replaced if uuid not in self.hidden)
        self.gpus.update(present)
        self.hidden = {uuid for uuid, gpu in self.gpus.items() if not choice.has_gpu(gpu.index)}
        self.departing += sorted(self.hidden & reported)

    def counting_clock_events(self, length_ns: int) -> ClockEvents:
        """Return the counter of clock events. A new length resets the counts of the window."""
        if self.clock_events.length_ns != length_ns:
            self.clock_events = ClockEvents(length_ns, self.clock_events.starts)
        return self.clock_events

    def describe(self, target: str) -> str:
        """Return index and uuid of a GPU; any other target unchanged."""
        gpu = self.gpus.get(target)
        return target if gpu is None else f"GPU {gpu.index} ({target})"

    def next_retry_delay(self) -> float:
        """Count a retry; return the seconds before it: 5, 10, 20, ... 300."""
        self.attempts += 1
        return min(_FIRST_DELAY * 2.0 ** min(self.attempts - 1, 16), _MAX_DELAY)
