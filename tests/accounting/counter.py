"""The energy counter of a GPU: which readings are plausible."""

from fractions import Fraction
from typing import Final

from tests.accounting.actions import (
    MS,
    S,
)

WATTS: Final = 6000
"""1.5 times the default power limit: the highest plausible rate, in mJ per ms."""
AGREE: Final = 60 * S
"""How long readings must agree before they replace the last good one."""


class EnergyCounter:
    """The energy counter of a GPU: which readings are plausible, and the energy since then.

    Attributes:
        base: time and value of the last good reading.
        time: the time in which the energy that `read` returned last was used.
    """

    def __init__(self) -> None:
        self.base: tuple[int, int] | None = None
        self.time = 0
        self._candidate: tuple[int, int] | None = None
        self._last = 0
        self._increased = False

    def clear(self) -> None:
        self.base = self._candidate = None
        self._increased = False

    def read(self, at: int, value: int) -> int | None:
        """Return the energy used since the last good reading; None if it is unknown."""
        base, candidate = self.base, self._candidate
        if base is None:
            self.base = (at, value)
            return None
        if _possible(base, (at, value)):
            return self._accept(base, at, value)
        if candidate is None or value < self._last or not _possible(candidate, (at, value)):
            self._candidate = (at, value)
        elif value > candidate[1] and (at - candidate[0] >= AGREE or not self._increased):
            return self._accept(candidate, at, value)
        self._last = value
        return None

    def _accept(self, since: tuple[int, int], at: int, value: int) -> int:
        self.base, self._candidate = (at, value), None
        self.time = at - since[0]
        if value > since[1]:
            self._increased = True
        return value - since[1]


def _possible(before: tuple[int, int], now: tuple[int, int]) -> bool:
    """Return whether a counter, in mJ, can have changed from one reading to the other."""
    increase, took = now[1] - before[1], now[0] - before[0]
    return 0 <= increase <= Fraction(WATTS * (took + S), MS)
