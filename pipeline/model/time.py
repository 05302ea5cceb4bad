"""Points in time."""

from dataclasses import dataclass

NS = 1_000_000_000
"""Nanoseconds in a second."""


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One moment on both of the machine's clocks, made by `ctx.clock` alone.

    Every time in the model is of this type, so that a replay can move a whole recording by type and
    tests can run on virtual time. Durations come from `mono_ns`; `wall_ns` is for people and for
    wire formats, and may step.

    Attributes:
        mono_ns: the monotonic clock, nanoseconds since an arbitrary start.
        wall_ns: the wall clock, nanoseconds since the Unix epoch.
    """

    mono_ns: int
    wall_ns: int

    def seconds_until(self, later: "Instant") -> float:
        """Seconds from this moment to `later` on the monotonic clock; negative if earlier."""
        return (later.mono_ns - self.mono_ns) / NS
