"""Energy that a GPU used between samples, and the power that it draws when idle."""

from typing import Final

from pipeline.model import NS
from pipeline.usage.monotonic_counter import PlausibleCounter, energy_rate

MIN_INTERVAL_NS: Final = 9 * NS // 10
"""Shortest interval from which idle power or the largest busy part is measured. The energy counter
moves in steps, and a shorter interval may contain no step."""


_RATE: Final = energy_rate(None)
"""Highest plausible energy rate of any GPU. Sources check readings against the GPU's power limit;
the account checks them again because it must not rely on a source."""


class EnergyMeter:
    """Reads the energy counter of a GPU, and measures the lowest power while it is not busy.

    Attributes:
        has_outstanding_energy: whether there is a good reading, but the last reading was missing or
            implausible. The next good reading returns the energy since the last good one.
    """

    def __init__(self) -> None:
        self.has_outstanding_energy = False
        self._growth = PlausibleCounter()
        self._source = ""
        self._idle: tuple[int, int] | None = None

    def read(self, source: str, counter_mj: int | None, at_ns: int, *, adjoins: bool) -> int | None:
        """Return the energy since the last good reading; None if it is unknown.

        After a gap, or if another source reads the counter, the reading is the first one again.

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

    def idle_energy(self, energy_mj: int, busy_ns: int | None) -> int:
        """Return how much of the energy that `read` returned an idle GPU would have used.

        Idle power is the lowest power in an interval that is long enough and had no busy time.
        Until there was such an interval, the result is 0.

        Args:
            energy_mj: the energy, in millijoules.
            busy_ns: busy time of the interval; None if it is unknown.
        """
        time_ns, least = self._growth.time_ns, self._idle
        is_idle = busy_ns == 0 and time_ns >= MIN_INTERVAL_NS
        if is_idle and (least is None or energy_mj * least[1] < least[0] * time_ns):
            self._idle = least = (energy_mj, time_ns)
        return 0 if least is None else min(energy_mj, least[0] * time_ns // least[1])
