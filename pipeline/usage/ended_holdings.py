"""Final holdings, kept for some minutes so that sinks can read them."""

from collections import deque
from dataclasses import replace
from typing import Final

from pipeline.model import NS, Holding

NEVER: Final = 1 << 63
"""A time after all others, for what does not expire."""

RETENTION_NS: Final = 300 * NS
"""How long an ended holding is kept."""

MAX_ENDED: Final = 1024
"""Largest number of ended holdings. If there are more, the oldest is evicted and counted."""


class EndedHoldings:
    """The ended holdings of all devices, in the order in which they became final.

    Attributes:
        evicted: number of holdings that were removed early, because there were too many.
    """

    def __init__(self) -> None:
        self.evicted = 0
        self._serial = 0
        self._holdings: deque[tuple[int, Holding]] = deque()
        self._cached: tuple[Holding, ...] | None = ()

    def add(self, holding: Holding, now_ns: int) -> None:
        """Add a final holding; it gets the next serial number.

        Args:
            holding: a holding with an end.
            now_ns: the present time, by the monotonic clock.
        """
        self._serial += 1
        if len(self._holdings) >= MAX_ENDED:
            self._holdings.popleft()
            self.evicted += 1
        self._holdings.append((now_ns, replace(holding, serial=self._serial)))
        self._cached = None

    def expire(self, now_ns: int) -> bool:
        """Remove the holdings that were added more than `RETENTION_NS` ago.

        Returns:
            Whether there were any.
        """
        kept = self._holdings
        before = len(kept)
        while kept and now_ns - kept[0][0] > RETENTION_NS:
            kept.popleft()
        if len(kept) == before:
            return False
        self._cached = None
        return True

    @property
    def due_ns(self) -> int:
        """The last time at which no holding expires."""
        return self._holdings[0][0] + RETENTION_NS if self._holdings else NEVER

    def holdings(self) -> tuple[Holding, ...]:
        """Return all kept holdings; the same object while they are unchanged."""
        if self._cached is None:
            self._cached = tuple([holding for _, holding in self._holdings])
        return self._cached
