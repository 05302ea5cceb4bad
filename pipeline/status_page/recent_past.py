"""What the status page remembers: the last hour of each device, faults, and XID errors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import ref

from pipeline.model import Instant, Snapshot
from pipeline.status_page.fault_memory import FaultMemory, KnownFault, KnownXid
from pipeline.status_page.last_hour import HourOfDevice, LastHour
from pipeline.status_page.last_minute import BusyPoint, Key, LastMinute


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered at one time.

    Attributes:
        hours: the last hour of each device, by UUID.
        faults: faults that are present.
        xids: XID errors of the last hour.
        minute: a point about a minute ago of each container on a device.
        returned: when each GPU that was lost responded again, by UUID.
    """

    hours: Mapping[str, HourOfDevice] = field(default_factory=dict)
    faults: tuple[KnownFault, ...] = ()
    xids: tuple[KnownXid, ...] = ()
    minute: Mapping[Key, BusyPoint] = field(default_factory=dict)
    returned: Mapping[str, Instant] = field(default_factory=dict)


class RecentPast:
    """Remembers what the page shows of earlier snapshots, in bounded memory."""

    def __init__(self) -> None:
        # Weak: otherwise the snapshot would stay in memory longer than it is shown.
        self._snapshot: Callable[[], Snapshot | None] = lambda: None
        self._hour = LastHour()
        self._faults = FaultMemory()
        self._minute = LastMinute()

    def add(self, snapshot: Snapshot | None) -> None:
        """Add the newest snapshot; nothing happens if it was added before, or if there is none."""
        if snapshot is None or snapshot is self._snapshot():
            return
        self._snapshot = ref(snapshot)
        self._hour.add(snapshot)
        self._faults.add(snapshot)
        self._minute.add(snapshot)

    def known(self) -> Past:
        """Return a copy, which a thread can read."""
        faults, minute = self._faults, self._minute.oldest()
        return Past(self._hour.hours(), faults.faults, faults.xids, minute, faults.returned)
