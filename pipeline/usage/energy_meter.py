"""The energy counter of a GPU, and what of its energy the GPU draws when it does nothing."""

from typing import Final

from pipeline.model import NS
from pipeline.usage.monotonic_counter import PlausibleCounter, energy_rate

MIN_INTERVAL_NS: Final = 9 * NS // 10
"""How long an interval is at least that tells what a GPU draws when idle: the counter moves in
steps, and a short one may hold none of them."""


_RATE: Final = energy_rate(None)
"""Sources know the power limit and have judged each reading by it. The account depends on nobody's
care: it judges each one again, by a limit that holds for every GPU."""


class EnergyMeter:
    """Reads a counter, and learns the least power that was drawn with nothing to do.

    Attributes:
        has_base_reading: there is a good reading, but the last one wasn't: what the next good one
            brings is of all the time between.
    """

    def __init__(self) -> None:
        self.has_base_reading = False
        self._growth = PlausibleCounter()
        self._source = ""
        self._idle: tuple[int, int] | None = None

    @property
    def time_ns(self) -> int:
        """In which time that was used which `read` last returned."""
        return self._growth.time_ns

    def read(self, source: str, counter_mj: int | None, at_ns: int, *, adjoins: bool) -> int | None:
        """Return what was used since the last good reading; None where that isn't known.

        Args:
            source: who read it.
            counter_mj: where it stands, in millijoules; None where it couldn't be read.
            at_ns: when it was read.
            adjoins: nothing lies between the last look and the interval that ends now.
        """
        if not adjoins or source != self._source:
            self._growth.reset()
        self._source = source
        used = None if counter_mj is None else self._growth.read(counter_mj, at_ns, _RATE)
        self.has_base_reading = self._growth.has_base and (
            counter_mj is None or self._growth.is_implausible
        )
        return used

    def learn_idle_power(self, energy_mj: int, time_ns: int, busy_ns: int | None) -> None:
        """Take in an interval: if nothing was busy in it, it may tell what the GPU draws idle."""
        if busy_ns != 0 or time_ns < MIN_INTERVAL_NS:
            return
        least = self._idle
        if least is None or energy_mj * least[1] < least[0] * time_ns:
            self._idle = (energy_mj, time_ns)

    def idle_energy(self, energy_mj: int, time_ns: int) -> int:
        """Return how much of an interval's energy would have been used anyway, in millijoules."""
        if self._idle is None:
            return 0
        used, within = self._idle
        return min(energy_mj, used * time_ns // within)
