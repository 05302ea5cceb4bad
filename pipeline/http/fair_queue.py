"""A queue that gives turns fairly among clients, however many requests each sends."""

import asyncio
from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush
from ipaddress import AddressValueError, IPv6Address
from itertools import count
from typing import Final

_MAX_SOURCES: Final = 4096
"""Sources that are remembered; the one whose last request is oldest is forgotten first."""


_MAX_OUTDATED: Final = 64


class BusyError(Exception):
    """No turn is available: too many requests wait, and no other source has sent more."""


class FairQueue:
    """Gives turns; the next one goes to the source that had fewest.

    Turns that were taken and turns that were refused both count. A source that is new, or has sent
    no request for long, counts as if it had as many as the source that got the last turn. So a
    client that sends few requests waits only for the turns in progress, and not for clients that
    send many, from however many addresses. Among sources with the same number, a known one that
    really had fewer is first, then the one that came first.

    Args:
        at_once: turns that may be taken at a time.
        waiting: requests that may wait. A further one displaces a request of the source that has
            sent most. None for no limit.
    """

    def __init__(self, at_once: int, waiting: int | None = None) -> None:
        self._free = at_once
        self._max_waiting = waiting
        self._last_count = 0
        self._requests: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0
        # Heap of the waiting sources: turns they had, whether they are not known to have had fewer,
        # and in which order they came. It also contains outdated entries.
        self._order: list[tuple[int, bool, int, str]] = []
        self._numbers = count()

    def __len__(self) -> int:
        """Return how many requests wait."""
        return self._count

    async def acquire(self, source: str) -> None:
        """Wait for a turn, which ends with `release`.

        Args:
            source: the client's address; see `source_of`.

        Raises:
            BusyError: too many requests wait; possibly raised only after some waiting.
        """
        turns_had = self._requests.pop(source, 0)
        before = max(self._last_count, turns_had)
        self._requests[source] = before + 1
        self._forget()
        if self._free:
            self._free -= 1
            self._last_count = before
        else:
            await self._wait(source, not_behind=not 0 < turns_had < before)

    async def _wait(self, source: str, *, not_behind: bool) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own = self._waiting.setdefault(source, deque())
        own.append(turn)
        self._count += 1
        self._rank(source, not_behind=not_behind)
        if self._max_waiting is not None and self._count > self._max_waiting:
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
        """Release a turn; the next request gets it."""
        while self._waiting:
            source = self._next()
            self._last_count = max(self._last_count, self._served_count(source))
            turn = self._pop(source, 0)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next(self) -> str:
        """Return the waiting source that gets the next turn."""
        while not self._is_current(self._order[0]):
            heappop(self._order)
        return self._order[0][-1]

    def _rank(self, source: str, *, not_behind: bool) -> None:
        heappush(self._order, (self._served_count(source), not_behind, next(self._numbers), source))
        if len(self._order) > 4 * self._count + _MAX_OUTDATED:
            self._order = list(filter(self._is_current, self._order))
            heapify(self._order)

    def _is_current(self, ranked: tuple[int, bool, int, str]) -> bool:
        turns_had, _, _, source = ranked
        return source in self._waiting and self._served_count(source) == turns_had

    def _next_to_reject(self) -> str:
        """Return the source of which a waiting request is refused."""
        return max(self._waiting, key=self._requests.__getitem__)

    def _served_count(self, source: str) -> int:
        """Return how many turns a source had or was refused: its requests without waiting ones."""
        return self._requests[source] - len(self._waiting[source])

    def _pop(self, source: str, at: int) -> asyncio.Future[None]:
        turn = self._waiting[source][at]
        self._drop(source, turn)
        return turn

    def _drop(self, source: str, turn: asyncio.Future[None]) -> None:
        self._waiting[source].remove(turn)
        self._count -= 1
        if self._waiting[source]:
            self._rank(source, not_behind=True)
        else:
            del self._waiting[source]

    def _forget(self) -> None:
        """Forget the oldest sources beyond the limit, except those that wait."""
        while len(self._requests) > _MAX_SOURCES + len(self._waiting):
            source, requests = self._requests.popitem(last=False)
            if source in self._waiting:
                self._requests[source] = requests


def source_of(address: str) -> str:
    """Return the source of a client: its IPv4 address, or the /64 of its IPv6 address.

    A client that has one IPv6 address usually has its whole /64.
    """
    try:
        number = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        return address
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    return f"{IPv6Address(int(number) >> 64 << 64)}/64"
