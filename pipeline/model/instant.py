"""Points in time."""

from dataclasses import dataclass

NS = 1_000_000_000
"""Nanoseconds in a second."""


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One moment on both of the machine's clocks, made by `ctx.clock` alone.

    Every time in the model is of this type, so that a replay can move a whole recording by type and
    tests can run on virtual time. Durations come from `mono_ns`. `wall_ns` is what the wall clock
    showed at that moment: it may have been set since. See `wall_of` for the time to show.

    Attributes:
        mono_ns: the monotonic clock, nanoseconds since an arbitrary start.
        wall_ns: the wall clock, nanoseconds since the Unix epoch.
    """

    mono_ns: int
    wall_ns: int

    def seconds_until(self, later: "Instant") -> float:
        """Seconds from this moment to `later` on the monotonic clock; negative if earlier."""
        return (later.mono_ns - self.mono_ns) / NS

    def wall_of(self, moment: "Instant") -> int:
        """Return the wall time of another moment, by the wall clock as it is at this one.

        The wall clock may have been set between the two. The difference of two times that one
        instant returns is the length on the monotonic clock. Whoever shows or stores a wall time
        uses this, with the time of the snapshot.

        Returns:
            Nanoseconds since the Unix epoch; less than 0 for a moment before it. In 64 bits.
        """
        return min(max(self.wall_ns + moment.mono_ns - self.mono_ns, -(1 << 63)), (1 << 63) - 1)
