"""Holdings that have ended, for as long as somebody may not have seen them yet."""

from collections import deque
from dataclasses import replace
from typing import Final

from pipeline.model import NS, Holding

KEPT_NS: Final = 300 * NS
"""For how long they are kept."""

MOST_ENDED: Final = 1024
"""How many are kept; beyond that the first of them are let go of early, and counted."""


class Ended:
    """The holdings of all devices that have ended, by the number of their end.

    Attributes:
        lost: how many were let go of early.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._serial = 0
        self._kept: deque[tuple[int, Holding]] = deque()
        self._shown: tuple[Holding, ...] | None = ()

    def add(self, holding: Holding, now_ns: int) -> None:
        """Take in a holding of which nothing more is to come; it gets the next number.

        Args:
            holding: with an end.
            now_ns: by the monotonic clock.
        """
        self._serial += 1
        if len(self._kept) >= MOST_ENDED:
            self._kept.popleft()
            self.lost += 1
        self._kept.append((now_ns, replace(holding, serial=self._serial)))
        self._shown = None

    def expire(self, now_ns: int) -> bool:
        """Let go of those that were kept long enough; return whether there were any."""
        kept = self._kept
        before = len(kept)
        while kept and now_ns - kept[0][0] > KEPT_NS:
            kept.popleft()
        if len(kept) == before:
            return False
        self._shown = None
        return True

    @property
    def due_ns(self) -> int | None:
        """The last moment at which none has to go; None where there is none."""
        return self._kept[0][0] + KEPT_NS if self._kept else None

    def shown(self) -> tuple[Holding, ...]:
        """Return all that are kept; the same object while they are the same."""
        if self._shown is None:
            self._shown = tuple([holding for _, holding in self._kept])
        return self._shown
