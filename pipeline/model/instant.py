"""Points in time."""

from dataclasses import dataclass

NS = 1_000_000_000
"""Nanoseconds in a second."""


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point in time on both clocks of the machine. `ctx.clock` returns the present instant.

    Every time in the model has this type, so that a replay can shift all times of a recording and
    tests can run on virtual time. Durations are differences of `mono_ns`. `wall_ns` is what the
    wall clock showed at that moment; the clock may have been set since. `wall_of` returns the wall
    time that podgpu shows.

    Attributes:
        mono_ns: the monotonic clock, nanoseconds since an arbitrary start.
        wall_ns: the wall clock, nanoseconds since the Unix epoch.
    """

    mono_ns: int
    wall_ns: int

    def seconds_until(self, later: "Instant") -> float:
        """Return the seconds until `later` on the monotonic clock; negative if it is earlier."""
        return (later.mono_ns - self.mono_ns) / NS

    def wall_of(self, moment: "Instant") -> int:
        """Return the wall time of another instant, by the wall clock as it is at this one.

        The wall clock may have been set between the two. All wall times that one instant returns
        are as far apart as the moments are on the monotonic clock. Code that shows or stores a
        wall time calls this on the time of the snapshot.

        Returns:
            Nanoseconds since the Unix epoch, negative for a moment before it; limited to 64 bits.
        """
        return min(max(self.wall_ns + moment.mono_ns - self.mono_ns, -(1 << 63)), (1 << 63) - 1)
