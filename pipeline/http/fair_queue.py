"""A queue that gives turns fairly among clients, however many requests each client sends."""

import asyncio
from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush
from ipaddress import AddressValueError, IPv6Address
from itertools import count
from typing import Final

_MAX_SOURCES: Final = 4096
"""Number of sources that are remembered. That with the oldest last request is forgotten first."""


_MAX_OUTDATED: Final = 64


class BusyError(Exception):
    """The request gets no turn: too many requests wait, and no source has sent more than this."""


class FairQueue:
    """Gives turns. The next turn goes to the waiting source with the fewest turns so far.

    Refused requests count as turns. A source starts with the number of turns of the source that got
    the last turn; so does a source with a lower number when it returns. So a client that sends few
    requests does not wait for clients that send many. If two sources have the same number, one that
    is known to have had fewer is first, then the one that came first.

    Args:
        at_once: number of turns that may be taken at the same time.
        waiting: number of requests that may wait. A further one displaces a request of the source
            that has sent most. None for no limit.
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
        """Return the number of requests that wait."""
        return self._count

    async def acquire(self, source: str) -> None:
        """Wait for a turn. The caller ends the turn with `release`.

        Args:
            source: address of the client; see `source_of`.

        Raises:
            BusyError: too many requests wait. It may be raised after some time of waiting.
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
        """End a turn, and give it to the next request."""
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
        """Return the source that loses one of its waiting requests."""
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
        """Forget the sources with the oldest requests beyond the limit, except waiting sources."""
        while len(self._requests) > _MAX_SOURCES + len(self._waiting):
            source, requests = self._requests.popitem(last=False)
            if source in self._waiting:
                self._requests[source] = requests


def source_of(address: str) -> str:
    """Return the source of a client: its IPv4 address, or the /64 network of its IPv6 address.

    A client that has one IPv6 address usually has its whole /64 network.
    """
    try:
        number = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        return address
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    return f"{IPv6Address(int(number) >> 64 << 64)}/64"
