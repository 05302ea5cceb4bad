"""The energy counter of a GPU: which of its readings can be true."""

from fractions import Fraction
from typing import Final

from tests.accounting.given_out import (
    MS,
    S,
)

WATTS: Final = 6000
"""1.5 times the power limit where nobody reports one: no counter grows faster, in mJ per ms."""
AGREE: Final = 60 * S
"""For how long readings must agree to replace the last good one."""


class Counted:
    """The energy counter of a GPU: which readings can be true, and what was used since.

    Attributes:
        base: the last good reading, and when it was.
        time: in which time that was used which `judge` last returned.
    """

    def __init__(self) -> None:
        self.base: tuple[int, int] | None = None
        self.time = 0
        self._rival: tuple[int, int] | None = None
        self._last = 0
        self._proven = False

    def clear(self) -> None:
        self.base = self._rival = None
        self._proven = False

    def judge(self, at: int, value: int) -> int | None:
        """Return what was used since the last good reading; None if that isn't known."""
        base, rival = self.base, self._rival
        if base is None:
            self.base = (at, value)
            return None
        if _possible(base, (at, value)):
            return self._grown(base, at, value)
        if rival is None or value < self._last or not _possible(rival, (at, value)):
            self._rival = (at, value)
        elif value > rival[1] and (at - rival[0] >= AGREE or not self._proven):
            return self._grown(rival, at, value)
        self._last = value
        return None

    def _grown(self, since: tuple[int, int], at: int, value: int) -> int:
        self.base, self._rival = (at, value), None
        self.time = at - since[0]
        if value > since[1]:
            self._proven = True
        return value - since[1]


def _possible(before: tuple[int, int], now: tuple[int, int]) -> bool:
    """Whether a counter, in mJ, can have gone from one reading to the other."""
    grown, took = now[1] - before[1], now[0] - before[0]
    return 0 <= grown <= Fraction(WATTS * (took + S), MS)
