"""What outlives the source's runs, and the source itself."""

from sources.nvml.counter_state import DeviceHistory
from sources.nvml.library import Library
from sources.nvml.owner_thread import ProcessLookup
from sources.nvml.topology_job import TopologyReadings
from sources.nvml.worker_pool import WorkerPool
from sources.nvml.xid_reports import XidReports
from sources.nvml.xid_watch import XidWatch

_KEY = "nvml"

_FIRST, _LONGEST = 5.0, 300.0  # seconds


class NvmlState:
    """Everything that a reload of the configuration must not lose.

    Attributes:
        nvml: the library, initialised or not.
        history: what is known of the GPUs, and the XID counters.
        workers: the threads, those that are stuck among them.
        xid_watch: the thread that waits for XIDs, or did.
        xid_reports: XIDs that are still to be told.
        topology: how the GPUs are joined.
        process_lookup: whose the processes are.
        attempts: how often NVML was initialised anew since a GPU last answered.
    """

    def __init__(self) -> None:
        self.nvml = Library()
        self.history = DeviceHistory()
        self.workers = WorkerPool(self.history.describe)
        self.xid_watch: XidWatch | None = None
        self.xid_reports = XidReports()
        self.topology = TopologyReadings()
        self.process_lookup = ProcessLookup()
        self.attempts = 0

    def next_retry_delay(self) -> float:
        """Return the seconds before NVML is initialised anew: 5, 10, 20, ... 300."""
        self.attempts += 1
        return min(_FIRST * 2.0 ** min(self.attempts - 1, 16), _LONGEST)

    @classmethod
    def of(cls, restart_state: dict[str, object]) -> "NvmlState":
        """Return what an earlier run left in `ctx.kept`; leave it there at the first run."""
        found = restart_state.get(_KEY)
        if not isinstance(found, cls):
            found = restart_state[_KEY] = cls()
        return found
