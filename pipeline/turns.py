"""Turns, which who asks much shares fairly with who asks little."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Container
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from pipeline.networks import crowded, in_turn, number_of

_SOURCES: Final = 4096
"""Sources that are kept in mind; who has not asked for longest is forgotten first."""

_COMPARED: Final = 64
"""Sources that have had the same and are told apart by their networks; each takes some time."""


class BusyError(Exception):
    """There is no turn: too many wait, and those of no source have asked more."""


class Turns:
    """Gives turns, and the next one to the source that has had least.

    Had is a turn that was taken, and one that was refused. A source that is new, or has not asked
    for long, is taken to have had as much as the one with the turn before. So who asks seldom waits
    for the turns under way, and not for those who ask much, from however many addresses. Among
    sources that have had the same, networks alternate; see `pipeline.networks`.

    Args:
        at_once: turns that may be taken at a time.
        waiting: requests that may wait. A further one takes the place of one of the source that has
            asked most. None for no bound: who asks has one of his own.
        behind: sources that are next when no other waits, and give their place up to any other. It
            may change at any time.
    """

    def __init__(
        self, at_once: int, waiting: int | None = None, behind: Container[str] = ()
    ) -> None:
        self._free = at_once
        self._most = waiting
        self._behind = behind
        self._turn = 0
        self._least = 0
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    async def take(self, source: str) -> None:
        """Wait for a turn, which ends with `give`.

        Args:
            source: who asks.

        Raises:
            BusyError: others have the places to wait; possibly only after a while.
        """
        before = max(self._least, self._asked.pop(source, 0))
        self._asked[source] = before + 1
        self._forget()
        if self._free:
            self._free -= 1
            self._least = before
        else:
            await self._wait(source)

    async def _wait(self, source: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine = self._waiting.setdefault(source, deque())
        mine.append(turn)
        self._count += 1
        if self._most is not None and self._count > self._most:
            last = self._pop(self._last(), -1)
            if not last.done():
                last.set_exception(BusyError())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                if turn in self._waiting.get(source, ()):
                    self._drop(source, turn)
            elif turn.exception() is None:
                self.give()
            raise

    def give(self) -> None:
        """Give a turn back, to who is next."""
        while self._waiting:
            source = self._next()
            self._least = max(self._least, self._had(source))
            turn = self._pop(source, 0)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next(self) -> str:
        ranks = {one: (one in self._behind, self._had(one)) for one in self._waiting}
        least = min(ranks.values())
        equal = [one for one, rank in ranks.items() if rank == least][:_COMPARED]
        if len(equal) == 1:
            return equal[0]
        self._turn += 1
        numbers = {number_of(one): one for one in equal}
        return numbers[in_turn(sorted(numbers), self._turn)]

    def _last(self) -> str:
        ranks = {one: (one in self._behind, self._asked[one]) for one in self._waiting}
        most = max(ranks.values())
        equal = [one for one, rank in ranks.items() if rank == most][-_COMPARED:]
        numbers = {number_of(one): one for one in equal}
        return numbers[crowded(sorted(numbers))[1]]

    def _had(self, source: str) -> int:
        """Return how often a source has asked, but for what waits: had turns, or was refused."""
        return self._asked[source] - len(self._waiting[source])

    def _pop(self, source: str, at: int) -> asyncio.Future[None]:
        turn = self._waiting[source][at]
        self._drop(source, turn)
        return turn

    def _drop(self, source: str, turn: asyncio.Future[None]) -> None:
        self._waiting[source].remove(turn)
        self._count -= 1
        if not self._waiting[source]:
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
