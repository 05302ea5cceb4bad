"""Connections and bytes of all listeners, shared by where the clients are."""

import asyncio
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from pipeline.http.limits import Limits
from pipeline.http.network_fairness import largest_network, number_of

State: TypeAlias = Literal["idle", "reading", "queued", "working", "sending"]
"""What becomes of a connection: it waits for a request, for the rest of a body, for its turn; its
answer is being worked out, or sent."""

_FIRST_SECONDS: Final = 0.25
"""What a connection has for its request to come and to be read before it has been waited for."""

_SPARE: Final = 8
"""Descriptors that are left where there are too few, for those who come."""

_OURS: Final = frozenset({"queued", "working"})
"""States in which a client waits for podgpu, and not the other way round."""


class ClientConnection:
    """A connection, and what is held for it.

    Attributes:
        source: where its client is; see `source_of`.
        reserved: it is there for the probes' paths alone.
        state: what becomes of it.
        since: when that began, in the event loop's time.
        answers: that it has had.
        head: bytes of requests that have come and aren't answered yet.
        held: all bytes that are held for it, apart from the answer.
        answer: parts of the answer that is being sent.
        ended: it has given way, and is about to end.
        abort: ends the connection, whatever its client does.
        cancel: ends what its bytes are held for.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.reserved = False
        self.state: State = "idle"
        self.since = 0.0
        self.answers = 0
        self.head = 0
        self.held = 0
        self.answer: Sequence[bytes] = ()
        self.ended = False
        self.abort: Callable[[], None] = _nothing
        self.cancel: Callable[[], None] | None = None

    @property
    def bytes(self) -> int:
        """What is held for it, its answer included."""
        return self.held + sum(map(len, self.answer))


class ClientAccounting:
    """Counts connections, and bytes that are held for them.

    Counted is what has come, not what was announced. Where there is no room, the source with most
    makes it: no source that has little waits for one that has much.

    Args:
        limits: for all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = limits.connections
        # The one whose state has not changed for longest comes first.
        self._clients: dict[ClientConnection, None] = {}
        self._reserved: dict[ClientConnection, None] = {}
        self._sources: Counter[str] = Counter()
        self._numbers: list[int] = []  # of the guests' sources, sorted
        self._holding: dict[ClientConnection, None] = {}
        self._answers: dict[int, int] = {}
        self._held = 0
        # Threads put in: a number they took off themselves could lose one of two changes.
        self._released: deque[tuple[ClientConnection, int]] = deque()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        self._apply_releases()
        return self._held

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._clients) + len(self._reserved)

    # Connections.

    def admit(self, source: str) -> ClientConnection:
        """Count a connection, at the cost of another where there is no room."""
        guest = ClientConnection(source)
        guest.since = _now()
        guest.reserved = True
        self._reserved[guest] = None
        if not self.promote(guest):
            self._keep_reserved(min(self._limits.reserve, self._most // 2))
        return guest

    def promote(self, client: ClientConnection) -> bool:
        """Make a connection of the reserve one like others; False if there is no room now."""
        if client not in self._reserved:
            return False
        if len(self._clients) >= min(self._most, self._limits.connections) and not self._evict(
            client.source
        ):
            return False
        del self._reserved[client]
        client.reserved = False
        self._clients[client] = None
        self._sources[client.source] += 1
        insort(self._numbers, number_of(client.source))
        return True

    def remove(self, client: ClientConnection) -> None:
        """Count a connection no longer."""
        if client in self._clients:
            del self._clients[client]
            self._remove(number_of(client.source))
            self._sources[client.source] -= 1
            if not self._sources[client.source]:
                del self._sources[client.source]
        self._reserved.pop(client, None)
        self.shrink_head(client)
        client.abort = _nothing

    def set_state(self, client: ClientConnection, state: State) -> None:
        """Note what becomes of a connection from now on."""
        client.state, client.since = state, _now()
        client.answers += state == "idle"
        for order in (self._clients, self._reserved):
            if client in order:
                del order[client]
                order[client] = None

    def reduce_limit(self) -> None:
        """Take fewer connections until `restore_limit`: there are no descriptors for more."""
        self._most = max(min(self._most, len(self)) - _SPARE, _SPARE)
        self._keep_reserved(0)
        while len(self._clients) > self._most and self._evict(""):
            pass

    def _keep_reserved(self, most: int) -> None:
        while len(self._reserved) > most:
            self._end(next(iter(self._reserved)))

    def restore_limit(self) -> None:
        """Take as many connections as there may be."""
        self._most = self._limits.connections

    def _evict(self, source: str) -> bool:
        """End a connection for a further one of a source, unless that would be unfair."""
        shares, mine = self._sources, self._sources[source]
        most = max(shares.values(), default=0)
        victim: ClientConnection | None
        if most > mine + 1:
            of = (guest for guest in self._clients if shares[guest.source] == most)
            victim = min(of, key=lambda guest: guest.state == "working")
        else:
            own = (guest for guest in self._clients if guest.source == source)
            victim = next((guest for guest in own if guest.state not in _OURS), None)
            victim = victim or self._next_to_evict(
                [guest for guest in self._clients if shares[guest.source] > mine]
            )
            victim = victim or self._in_largest_network(source)
        if victim is None:
            return False
        self._end(victim)
        return True

    def _next_to_evict(self, guests: Sequence[ClientConnection]) -> ClientConnection | None:
        """Return who has had its turn: it has been waited for, or has had most answers."""
        waits = (guest for guest in guests if guest.state not in _OURS)
        longest = next(waits, None)
        if longest is not None and _now() - longest.since >= _FIRST_SECONDS:
            return longest
        had = [guest for guest in guests if guest.answers and guest.state != "working"]
        return max(had, key=lambda guest: guest.answers, default=None)

    def _in_largest_network(self, source: str) -> ClientConnection | None:
        """Return who waits in the network that has most; None if the source is of that, too."""
        mine = number_of(source)
        insort(self._numbers, mine)
        low, high = largest_network(self._numbers)
        self._remove(mine)
        if low <= mine <= high:
            return None
        of = (guest for guest in self._clients if low <= number_of(guest.source) <= high)
        return next((guest for guest in of if guest.state != "working"), None)

    def _remove(self, number: int) -> None:
        del self._numbers[bisect_left(self._numbers, number)]

    def _end(self, guest: ClientConnection) -> None:
        guest.ended = True
        guest.abort()
        self.remove(guest)

    # Bytes.

    def grow(self, client: ClientConnection, size: int) -> bool:
        """Count bytes of a body that have come; False if it has to give way itself."""
        if client.ended:
            return False
        self._count(client, size)
        self._make_room(client)
        return not client.ended

    def grow_head(self, client: ClientConnection, size: int) -> None:
        """Count bytes of a request; others give way to them, since they are few."""
        if not client.ended:
            client.head += size
            self._count(client, size)
            self._make_room(client, spare=True)

    def shrink_head(self, client: ClientConnection, size: int | None = None) -> None:
        """Count a request no longer, or what of it is of its body."""
        size = client.head if size is None else min(size, client.head)
        client.head -= size
        self.shrink(client, size)

    def _count(self, guest: ClientConnection, size: int) -> None:
        guest.held += size
        self._held += size
        self._holding[guest] = None

    def shrink(self, client: ClientConnection, size: int) -> None:
        """Count bytes no longer."""
        size = min(size, client.held)  # nothing, once it has given way
        client.held -= size
        self._held -= size
        if not client.bytes:
            self._holding.pop(client, None)

    def count_until_released(self, client: ClientConnection, size: int) -> Callable[[], None]:
        """Return what ends the count of some bytes; it may be called in any thread."""
        put = self._released.append
        return lambda: put((client, size))

    @contextmanager
    def sending(self, client: ClientConnection, parts: Sequence[bytes]) -> Iterator[None]:
        """Count an answer while it is being sent.

        Args:
            client: gets it.
            parts: of the answer. The same object counts once, however many get it.
        """
        client.answer = parts
        self._holding[client] = None
        for part in parts:
            known = self._answers.get(id(part), 0)
            self._answers[id(part)] = known + 1
            if not known:
                self._held += len(part)
        if not client.ended:
            self._make_room(client)
        try:
            yield
        finally:
            self._sent(client)
            self.shrink(client, 0)

    def _sent(self, guest: ClientConnection) -> None:
        parts, guest.answer = guest.answer, ()
        for part in parts:
            self._answers[id(part)] -= 1
            if not self._answers[id(part)]:
                del self._answers[id(part)]
                self._held -= len(part)

    def _make_room(self, newcomer: ClientConnection, *, spare: bool = False) -> None:
        if self._held > self._limits.bytes:
            self._apply_releases()
        while self._is_full():
            victim = self._largest(newcomer) or newcomer
            if spare and victim is newcomer:
                return
            self._displace(victim)
            if victim is newcomer:
                return

    def _is_full(self) -> bool:
        """Whether all but the largest are too much; that one is bounded elsewhere."""
        most = self._limits.bytes
        if self._held <= most:
            return False
        return self._held - max((one.bytes for one in self._holding), default=0) > most

    def _largest(self, newcomer: ClientConnection) -> ClientConnection | None:
        """Return who makes room for a newcomer; None if nobody has as much as that."""
        by_source: Counter[str] = Counter()
        for guest in self._holding:
            if guest is not newcomer:
                by_source[guest.source] += guest.bytes
        largest = max(by_source, key=by_source.__getitem__, default=None)
        if largest is None:
            return None
        # It may have grown to more than it puts an end to, but not to a multiple.
        if by_source[newcomer.source] + newcomer.bytes > 2 * by_source[largest]:
            largest = newcomer.source
        of = [one for one in self._holding if one.source == largest and one is not newcomer]
        # Work that has begun goes on, unless it keeps another source out.
        last = of[-1] if of and largest != newcomer.source else None
        return next((one for one in of if one.state != "working"), last)

    def _displace(self, guest: ClientConnection) -> None:
        guest.ended = True
        self._sent(guest)
        self.shrink(guest, guest.held)
        self._holding.pop(guest, None)
        (guest.cancel or guest.abort)()

    def _apply_releases(self) -> None:
        while self._released:
            self.shrink(*self._released.popleft())


def _nothing() -> None:
    """End what has not begun, or has ended already."""


def _now() -> float:
    return asyncio.get_running_loop().time()
