"""When a record of the kernel's log was written, by podgpu's clock.

The kernel stamps records by a clock that nobody corrects: it begins like the monotonic one and
drifts away from it, by seconds in a week, and stands still or goes on while the machine sleeps. So
what a stamp means is found out from when records can be read.
"""

from typing import Final

from pipeline.model import Instant

_DRIFT: Final = 2000
"""The kernel's clock loses less than one part in so many: NTP slews by 500 in a million at most."""


class LogClock:
    """Turns stamps into moments: none before the log was last read to its end, none in the future.

    Args:
        now: the log is read from here on, or was read to its end.
    """

    def __init__(self, now: Instant) -> None:
        self._offset_ns: int | None = None
        self._seen_ns = self._quiet_ns = now.mono_ns

    def mark_read(self, at: Instant) -> None:
        """Note that all that was written up to a moment has been read."""
        self._quiet_ns = at.mono_ns

    def time_of(self, stamp_us: int, now: Instant) -> Instant:
        """Return when a record was written.

        Args:
            stamp_us: the record's stamp.
            now: the present moment: the record has just been read.
        """
        stamp_ns = stamp_us * 1000
        least, most = self._quiet_ns - stamp_ns, now.mono_ns - stamp_ns
        if self._offset_ns is None:
            offset_ns = most
        else:
            drift_ns = (now.mono_ns - self._seen_ns) // _DRIFT
            offset_ns = max(least, min(self._offset_ns + drift_ns, most))
        self._offset_ns, self._seen_ns = offset_ns, now.mono_ns
        ago_ns = now.mono_ns - (stamp_ns + offset_ns)
        return Instant(now.mono_ns - ago_ns, now.wall_ns - ago_ns)
