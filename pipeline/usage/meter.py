"""The energy counter of a GPU, and what of its energy the GPU draws when it does nothing."""

from typing import Final

from pipeline.model import NS

LEAST_NS: Final = 9 * NS // 10
"""How long an interval is at least that tells what a GPU draws when idle: the counter moves in
steps, and a short one may hold none of them."""


class Meter:
    """Reads a counter, and learns the least power that was drawn with nothing to do."""

    def __init__(self) -> None:
        self._stood: tuple[str, int] | None = None
        self._idle: tuple[int, int] | None = None

    def read(self, source: str, counter_mj: int | None, *, adjoins: bool) -> int | None:
        """Return what was used since the counter was last read; None where that isn't known.

        Args:
            source: who read it.
            counter_mj: where it stands, in millijoules.
            adjoins: the interval begins when it was last read.
        """
        stood = self._stood
        self._stood = None if counter_mj is None else (source, counter_mj)
        if counter_mj is None or stood is None or not adjoins or stood[0] != source:
            return None
        used = counter_mj - stood[1]
        return used if used >= 0 else None

    def learn(self, energy_mj: int, time_ns: int, busy_ns: int | None) -> None:
        """Take in an interval: if nothing was busy in it, it may tell what the GPU draws idle."""
        if busy_ns != 0 or time_ns < LEAST_NS:
            return
        least = self._idle
        if least is None or energy_mj * least[1] < least[0] * time_ns:
            self._idle = (energy_mj, time_ns)

    def idle(self, energy_mj: int, time_ns: int) -> int:
        """Return how much of an interval's energy would have been used anyway, in millijoules."""
        if self._idle is None:
            return 0
        used, within = self._idle
        return min(energy_mj, used * time_ns // within)
