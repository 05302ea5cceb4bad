"""Holdings that have ended, for as long as somebody may not have seen them yet."""

from collections import deque
from dataclasses import replace
from typing import Final

from pipeline.model import NS, Holding

RETENTION_NS: Final = 300 * NS
"""For how long they are kept."""

MAX_ENDED: Final = 1024
"""How many are kept; beyond that the first of them are let go of early, and counted."""


class EndedHoldings:
    """The holdings of all devices that have ended, by the number of their end.

    Attributes:
        evicted: how many were let go of early.
    """

    def __init__(self) -> None:
        self.evicted = 0
        self._serial = 0
        self._holdings: deque[tuple[int, Holding]] = deque()
        self._cached: tuple[Holding, ...] | None = ()

    def add(self, holding: Holding, now_ns: int) -> None:
        """Take in a holding of which nothing more is to come; it gets the next number.

        Args:
            holding: with an end.
            now_ns: by the monotonic clock.
        """
        self._serial += 1
        if len(self._holdings) >= MAX_ENDED:
            self._holdings.popleft()
            self.evicted += 1
        self._holdings.append((now_ns, replace(holding, serial=self._serial)))
        self._cached = None

    def expire(self, now_ns: int) -> bool:
        """Let go of those that were kept long enough; return whether there were any."""
        kept = self._holdings
        before = len(kept)
        while kept and now_ns - kept[0][0] > RETENTION_NS:
            kept.popleft()
        if len(kept) == before:
            return False
        self._cached = None
        return True

    @property
    def due_ns(self) -> int | None:
        """The last moment at which none has to go; None where there is none."""
        return self._holdings[0][0] + RETENTION_NS if self._holdings else None

    def holdings(self) -> tuple[Holding, ...]:
        """Return all that are kept; the same object while they are the same."""
        if self._cached is None:
            self._cached = tuple([holding for _, holding in self._holdings])
        return self._cached
