"""State that outlives the runs of the source and the source itself."""

from pipeline.component.xid_rate_limit import PendingXids
from pipeline.model import XidReport
from sources.nvml.counter_state import DeviceHistory
from sources.nvml.library import Library
from sources.nvml.owner_thread import ProcessLookup
from sources.nvml.topology_job import TopologyReadings
from sources.nvml.worker_pool import WorkerPool
from sources.nvml.xid_watch import XidWatch

_KEY = "nvml"

_FIRST_DELAY, _MAX_DELAY = 5.0, 300.0  # seconds


class NvmlState:
    """Everything that must survive a reload of the configuration.

    Attributes:
        nvml: the library, initialised or not.
        history: what is known about the GPUs, and the XID counters.
        workers: the threads that call NVML, including those that hang.
        xid_watch: the thread that waits for XID errors; it may have ended.
        xid_reports: XID errors that are not reported yet.
        topology: how the GPUs are connected.
        process_lookup: which containers the processes belong to.
        attempts: how often NVML was initialised since a GPU last responded.
    """

    def __init__(self) -> None:
        self.nvml = Library()
        self.history = DeviceHistory()
        self.workers = WorkerPool(self.history.describe)
        self.xid_watch: XidWatch | None = None
        self.xid_reports: PendingXids[XidReport] = PendingXids()
        self.topology = TopologyReadings()
        self.process_lookup = ProcessLookup()
        self.attempts = 0

    def next_retry_delay(self) -> float:
        """Return the seconds before NVML is initialised again: 5, 10, 20, ... 300."""
        self.attempts += 1
        return min(_FIRST_DELAY * 2.0 ** min(self.attempts - 1, 16), _MAX_DELAY)

    @classmethod
    def of(cls, restart_state: dict[str, object]) -> "NvmlState":
        """Return the state that an earlier run left in `restart_state`, or create and keep it."""
        found = restart_state.get(_KEY)
        if not isinstance(found, cls):
            found = restart_state[_KEY] = cls()
        return found
