"""Turns, which who asks much shares fairly with who asks little."""

import asyncio
from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush
from ipaddress import AddressValueError, IPv6Address
from itertools import count
from typing import Final

_SOURCES: Final = 4096
"""Sources that are kept in mind; who has not asked for longest is forgotten first."""


_SPARE: Final = 64


class BusyError(Exception):
    """There is no turn: too many wait, and those of no source have asked more."""


class FairQueue:
    """Gives turns, and the next one to the source that has had least.

    Had is a turn that was taken, and one that was refused. A source that is new, or has not asked
    for long, is taken to have had as much as the one with the turn before. So who asks seldom waits
    for the turns under way, and not for those who ask much, from however many addresses. Of those
    that have had the same, a known one that really had less is ahead, then who came first.

    Args:
        at_once: turns that may be taken at a time.
        waiting: requests that may wait. A further one takes the place of one of the source that has
            asked most. None for no bound: who asks has one of his own.
    """

    def __init__(self, at_once: int, waiting: int | None = None) -> None:
        self._free = at_once
        self._most = waiting
        self._least = 0
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0
        # What each source that waits has had, whether it is no better than others with as much, and
        # in which order they came; and some that is over.
        self._order: list[tuple[int, bool, int, str]] = []
        self._numbers = count()

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    async def acquire(self, source: str) -> None:
        """Wait for a turn, which ends with `release`.

        Args:
            source: who asks.

        Raises:
            BusyError: others have the places to wait; possibly only after a while.
        """
        had = self._asked.pop(source, 0)
        before = max(self._least, had)
        self._asked[source] = before + 1
        self._forget()
        if self._free:
            self._free -= 1
            self._least = before
        else:
            await self._wait(source, late=not 0 < had < before)

    async def _wait(self, source: str, *, late: bool) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine = self._waiting.setdefault(source, deque())
        mine.append(turn)
        self._count += 1
        self._rank(source, late=late)
        if self._most is not None and self._count > self._most:
            last = self._pop(self._next_to_reject(), -1)
            if not last.done():
                last.set_exception(BusyError())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                if turn in self._waiting.get(source, ()):
                    self._drop(source, turn)
            elif turn.exception() is None:
                self.release()
            raise

    def release(self) -> None:
        """Give a turn back, to who is next."""
        while self._waiting:
            source = self._next()
            self._least = max(self._least, self._served_count(source))
            turn = self._pop(source, 0)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next(self) -> str:
        """Return the source of those that wait which has the next turn."""
        while not self._holds(self._order[0]):
            heappop(self._order)
        return self._order[0][-1]

    def _rank(self, source: str, *, late: bool) -> None:
        heappush(self._order, (self._served_count(source), late, next(self._numbers), source))
        if len(self._order) > 4 * self._count + _SPARE:
            self._order = list(filter(self._holds, self._order))
            heapify(self._order)

    def _holds(self, ranked: tuple[int, bool, int, str]) -> bool:
        had, _, _, source = ranked
        return source in self._waiting and self._served_count(source) == had

    def _next_to_reject(self) -> str:
        """Return the one that gives up a place."""
        return max(self._waiting, key=self._asked.__getitem__)

    def _served_count(self, source: str) -> int:
        """Return how often a source has asked, but for what waits: had turns, or was refused."""
        return self._asked[source] - len(self._waiting[source])

    def _pop(self, source: str, at: int) -> asyncio.Future[None]:
        turn = self._waiting[source][at]
        self._drop(source, turn)
        return turn

    def _drop(self, source: str, turn: asyncio.Future[None]) -> None:
        self._waiting[source].remove(turn)
        self._count -= 1
        if self._waiting[source]:
            self._rank(source, late=True)
        else:
            del self._waiting[source]

    def _forget(self) -> None:
        """Keep no more sources in mind than there may be, but for those that wait."""
        while len(self._asked) > _SOURCES + len(self._waiting):
            source, asked = self._asked.popitem(last=False)
            if source in self._waiting:
                self._asked[source] = asked


def source_of(address: str) -> str:
    """Return what stands for a client: its IPv4 address, or the /64 of its IPv6 address.

    Who has one address of IPv6 mostly has all of its /64.
    """
    try:
        number = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        return address
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    return f"{IPv6Address(int(number) >> 64 << 64)}/64"
