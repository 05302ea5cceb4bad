"""Energy that a GPU used between samples, and the power that it draws when idle."""

from typing import Final

from pipeline.model import NS
from pipeline.usage.monotonic_counter import PlausibleCounter, energy_rate

MIN_INTERVAL_NS: Final = 9 * NS // 10
"""Shortest interval from which idle power is measured. The energy counter moves in steps, and a
shorter interval may contain none."""


_RATE: Final = energy_rate(None)
"""Highest plausible energy rate of any GPU. Sources check readings against the GPU's power limit;
the account checks them again because it must not rely on a source."""


class EnergyMeter:
    """Reads the energy counter of a GPU, and measures the lowest power while it is not busy.

    Attributes:
        has_outstanding_energy: whether there is a good reading, but the last one was missing or
            implausible. The next good one returns the energy of all time since.
    """

    def __init__(self) -> None:
        self.has_outstanding_energy = False
        self._growth = PlausibleCounter()
        self._source = ""
        self._idle: tuple[int, int] | None = None

    @property
    def time_ns(self) -> int:
        """The time in which the energy that `read` last returned was used."""
        return self._growth.time_ns

    def read(self, source: str, counter_mj: int | None, at_ns: int, *, adjoins: bool) -> int | None:
        """Return the energy since the last good reading; None if it is unknown.

        Args:
            source: name of the source that took the reading.
            counter_mj: the counter in millijoules; None if it could not be read.
            at_ns: when it was read.
            adjoins: whether the interval that ends now begins at the last sample.
        """
        if not adjoins or source != self._source:
            self._growth.reset()
        self._source = source
        used = None if counter_mj is None else self._growth.read(counter_mj, at_ns, _RATE)
        self.has_outstanding_energy = self._growth.has_base and (
            counter_mj is None or self._growth.is_implausible
        )
        return used

    def learn_idle_power(self, energy_mj: int, time_ns: int, busy_ns: int | None) -> None:
        """Measure idle power from an interval, if it is long enough and had no busy time."""
        if busy_ns != 0 or time_ns < MIN_INTERVAL_NS:
            return
        least = self._idle
        if least is None or energy_mj * least[1] < least[0] * time_ns:
            self._idle = (energy_mj, time_ns)

    def idle_energy(self, energy_mj: int, time_ns: int) -> int:
        """Return how much of an interval's energy an idle GPU would have used, in millijoules."""
        if self._idle is None:
            return 0
        used, within = self._idle
        return min(energy_mj, used * time_ns // within)
