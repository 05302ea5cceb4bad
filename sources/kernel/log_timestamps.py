"""Calculates when a record of the kernel log was written, by podgpu's clock.

The kernel's time stamps come from a clock that is never corrected. It starts like the monotonic
clock, drifts from it by seconds in a week, and may stop or continue while the machine sleeps. So
the offset between the clocks is estimated from the times at which records can be read.
"""

from typing import Final

from pipeline.model import Instant

_DRIFT: Final = 2000
"""The kernel's clock loses at most 1/2000, since NTP corrects by at most 500 in a million."""


class LogClock:
    """Converts time stamps to times between the last read of the whole log and now.

    Args:
        now: the time from which the log is read, or up to which it was read.
    """

    def __init__(self, now: Instant) -> None:
        self._offset_ns: int | None = None
        self._updated_ns = self._read_until_ns = now.mono_ns

    def mark_read(self, at: Instant) -> None:
        """Note that all records that were written before this time have been read."""
        self._read_until_ns = at.mono_ns

    def time_of(self, stamp_us: int, now: Instant) -> Instant:
        """Return when a record was written.

        Args:
            stamp_us: time stamp of the record, in microseconds.
            now: the present time, at which the record was just read.
        """
        stamp_ns = stamp_us * 1000
        minimum_ns, maximum_ns = self._read_until_ns - stamp_ns, now.mono_ns - stamp_ns
        if self._offset_ns is None:
            offset_ns = maximum_ns
        else:
            drift_ns = (now.mono_ns - self._updated_ns) // _DRIFT
            offset_ns = max(minimum_ns, min(self._offset_ns + drift_ns, maximum_ns))
        self._offset_ns, self._updated_ns = offset_ns, now.mono_ns
        age_ns = now.mono_ns - (stamp_ns + offset_ns)
        return Instant(now.mono_ns - age_ns, now.wall_ns - age_ns)
