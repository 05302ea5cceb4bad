"""Turns, which who asks much shares fairly with who asks little."""

import asyncio
from bisect import insort
from collections import OrderedDict
from ipaddress import AddressValueError, IPv6Address
from itertools import count, takewhile
from typing import Final

_SOURCES: Final = 4096
"""Sources that are kept in mind; who has not asked for longest is forgotten first."""


class BusyError(Exception):
    """There is no turn: too many wait, and none of them has asked more than who asks now."""


class Turns:
    """Gives turns by start-time fair queueing: each source as many as any other.

    A source's next request is stamped one later than its last, but never earlier than the turn
    that was given last. The earliest stamp has the next turn. So a source that asks seldom waits
    for the turns under way, and not for those who ask much.

    Args:
        at_once: turns that may be taken at a time.
        waiting: requests that may wait. A further one takes the place of one of the source that has
            asked most. None for no bound: who asks has one of his own.
    """

    def __init__(self, at_once: int, waiting: int | None = None) -> None:
        self._free = at_once
        self._most = waiting
        self._now = 0.0
        self._next: OrderedDict[str, float] = OrderedDict()
        self._waiting: list[tuple[float, int, str, asyncio.Future[None]]] = []
        self._number = count()

    async def take(self, source: str) -> None:
        """Wait for a turn, which ends with `give`.

        Args:
            source: who asks.

        Raises:
            BusyError: others have the places to wait; possibly only after a while.
        """
        stamp = max(self._now, self._next.pop(source, 0.0))
        self._next[source] = stamp + 1
        if len(self._next) > _SOURCES:
            self._next.popitem(last=False)
        if self._free:
            self._free -= 1
            self._now = stamp
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (stamp, next(self._number), source, turn)
        insort(self._waiting, entry)
        if self._most is not None and len(self._waiting) > self._most:
            last = self._waiting[-1]
            if last is entry:
                # Of those that had asked as little then, the one that has asked most since.
                as_late = takewhile(lambda one: one[0] == stamp, reversed(self._waiting))
                last = max(as_late, key=lambda one: (self._next.get(one[2], 0.0), one[1]))
            self._waiting.remove(last)
            if last is entry:
                raise BusyError
            if not last[3].done():
                last[3].set_exception(BusyError())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = [one for one in self._waiting if one is not entry]
            elif turn.exception() is None:
                self.give()
            raise

    def give(self) -> None:
        """Give a turn back, to who is next."""
        while self._waiting:
            stamp, _, _, turn = self._waiting.pop(0)
            if not turn.done():
                self._now = stamp
                turn.set_result(None)
                return
        self._free += 1
        # Nobody waits: who was just served asks anew as anybody does.
        self._now += 1


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
