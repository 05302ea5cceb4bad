"""What outlives the source's runs, and the source itself."""

from sources.nvml.counter_state import Memory
from sources.nvml.library import Library
from sources.nvml.owner_thread import Owners
from sources.nvml.topology_job import Joints
from sources.nvml.worker_pool import Crew
from sources.nvml.xid_reports import XidReports
from sources.nvml.xid_watch import XidWatch

_KEY = "nvml"

_FIRST, _LONGEST = 5.0, 300.0  # seconds


class Kept:
    """Everything that a reload of the configuration must not lose.

    Attributes:
        nvml: the library, initialised or not.
        memory: what is known of the GPUs, and the XID counters.
        crew: the threads, those that are stuck among them.
        watch: the thread that waits for XIDs, or did.
        reports: XIDs that are still to be told.
        joints: how the GPUs are joined.
        owners: whose the processes are.
        attempts: how often NVML was initialised anew since a GPU last answered.
    """

    def __init__(self) -> None:
        self.nvml = Library()
        self.memory = Memory()
        self.crew = Crew(self.memory.describe)
        self.watch: XidWatch | None = None
        self.reports = XidReports()
        self.joints = Joints()
        self.owners = Owners()
        self.attempts = 0

    def patience(self) -> float:
        """Return the seconds before NVML is initialised anew: 5, 10, 20, ... 300."""
        self.attempts += 1
        return min(_FIRST * 2.0 ** min(self.attempts - 1, 16), _LONGEST)

    @classmethod
    def of(cls, kept: dict[str, object]) -> "Kept":
        """Return what an earlier run left in `ctx.kept`; leave it there at the first run."""
        found = kept.get(_KEY)
        if not isinstance(found, cls):
            found = kept[_KEY] = cls()
        return found
