"""How busy each container kept a device lately."""

from pipeline.usage.container_accounts import ContainerAccounts
from pipeline.usage.energy_meter import MIN_INTERVAL_NS
from pipeline.usage.interval_samples import IntervalUsage

_WHOLE_PPM = 1_000_000


class RecentLoad:
    """Sets `recent_busy_ppm` of the containers on one device, from the latest intervals.

    Intervals are added up until they are `MIN_INTERVAL_NS` long: a shorter interval may contain a
    whole sampling period of the driver, or none. All containers have the same time, so that their
    parts add up to at most one whole.

    Args:
        containers: the containers in the account of the device.
    """

    def __init__(self, containers: ContainerAccounts) -> None:
        self._containers = containers
        self._time_ns = 0

    def add(self, interval: IntervalUsage, *, no_others: bool) -> None:
        """Add an interval that follows the previous one, after its busy time was counted.

        Args:
            interval: the usage of the interval.
            no_others: whether containers that are not in `interval.busy` were not busy.
        """
        self._time_ns += interval.time_ns
        other_ns = 0 if no_others else None
        busy = interval.busy
        for entry in self._containers:
            added_ns = None
            if busy is not None and entry.name not in interval.concealed:
                added_ns = busy.get(entry.name, other_ns)
            if added_ns is None or entry.window_busy_ns is None:
                entry.window_busy_ns = None
            else:
                entry.window_busy_ns += added_ns
        if self._time_ns >= MIN_INTERVAL_NS:
            self._publish()

    def forget(self) -> None:
        """Set how busy the containers are to unknown, and start again."""
        self._time_ns = 0
        for entry in self._containers:
            entry.recent_busy_ppm, entry.window_busy_ns = None, 0

    def _publish(self) -> None:
        for entry in self._containers:
            busy_ns, entry.window_busy_ns = entry.window_busy_ns, 0
            entry.recent_busy_ppm = None
            if busy_ns is not None and entry.ended is None and not entry.unseen:
                entry.recent_busy_ppm = min(busy_ns * _WHOLE_PPM // self._time_ns, _WHOLE_PPM)
        self._time_ns = 0
