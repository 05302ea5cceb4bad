"""Counts connections and bytes of all listeners, and shares both fairly among clients."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from pipeline.http.limits import Limits
from pipeline.http.network_fairness import largest_network, number_of

State: TypeAlias = Literal["idle", "reading", "queued", "working", "sending"]
"""State of a connection: it waits for a request; podgpu reads a body; the request waits for its
turn; podgpu makes the response; podgpu sends the response."""

_GRACE_SECONDS: Final = 0.25
"""Seconds for which a connection must be in its state before it counts as waiting for its client. A
new connection has that time to send its request."""

_SPARE_DESCRIPTORS: Final = 8
"""File descriptors that are kept free for new connections when there are too few."""

_WAITING_FOR_PODGPU: Final = frozenset({"queued", "working"})
"""States in which the client waits for podgpu, not podgpu for the client."""


class ClientConnection:
    """A connection, and the bytes that podgpu holds for it.

    Attributes:
        source: address of the client, or its IPv6 network; see `source_of`.
        reserved: whether the connection is in the reserve; see `Limits.reserve`.
        state: current state of the connection.
        since: time at which the state began, in the event loop's time.
        answers: number of responses that were sent to the client.
        head: bytes of request heads that were received and whose response is not sent yet.
        held: all bytes that are held for the connection, without the response.
        answer: parts of the response that is being sent.
        ended: whether the connection was evicted; it is closed soon.
        abort: closes the connection immediately.
        cancel: ends the reading of a body; None if no body is being read.
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
        self.abort: Callable[[], object] = _nothing
        self.cancel: Callable[[], None] | None = None

    @property
    def bytes(self) -> int:
        """Bytes that are held for the connection, including its response."""
        return self.held + sum(map(len, self.answer))


class ClientShares:
    """Counts connections, and the bytes that podgpu holds for them.

    It counts bytes that were received, not the announced length of a body. If there is no room, the
    source that holds most must release some, so that a source that holds little never waits for
    one that holds much.

    Args:
        limits: limits for all connections together.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._limit = limits.connections
        # In the order in which their states changed, the oldest change first.
        self._clients: dict[ClientConnection, None] = {}
        self._reserved: dict[ClientConnection, None] = {}
        self._holding: dict[ClientConnection, None] = {}
        self._answers: dict[int, int] = {}
        self._held = 0
        # Threads append here: if they changed the counts themselves, changes could get lost.
        self._released: deque[tuple[ClientConnection, int]] = deque()

    @property
    def held(self) -> int:
        """Bytes that are held for all connections."""
        self._apply_releases()
        return self._held

    def __len__(self) -> int:
        """Return the number of connections, including those in the reserve."""
        return len(self._clients) + len(self._reserved)

    # Connections.

    def admit(self, source: str) -> ClientConnection:
        """Count a new connection.

        If all are in use, evict another connection; if none may be evicted, put the new one into
        the reserve, and close the oldest ones there beyond the limit.
        """
        client = ClientConnection(source)
        client.since = _now()
        client.reserved = True
        self._reserved[client] = None
        if not self.promote(client):
            self._keep_reserved(min(self._limits.reserve, self._limit // 2))
        return client

    def promote(self, client: ClientConnection) -> bool:
        """Move a connection from the reserve to the normal ones; return whether it was moved.

        If there is no room, another connection is evicted if that is fair.
        """
        if client not in self._reserved:
            return False
        full = len(self._clients) >= min(self._limit, self._limits.connections)
        if full and not self._evict(client.source):
            return False
        del self._reserved[client]
        client.reserved = False
        self._clients[client] = None
        return True

    def remove(self, client: ClientConnection) -> None:
        """Stop counting a connection and its request head."""
        self._clients.pop(client, None)
        self._reserved.pop(client, None)
        self.shrink_head(client)
        client.abort = _nothing

    def set_state(self, client: ClientConnection, state: State) -> None:
        """Set the state of a connection, and count its response if the new state is `idle`."""
        client.state, client.since = state, _now()
        client.answers += state == "idle"
        for order in (self._clients, self._reserved):
            if client in order:
                del order[client]
                order[client] = None

    def reduce_limit(self) -> None:
        """Close connections and allow fewer until `restore_limit`, to free file descriptors."""
        self._limit = max(min(self._limit, len(self)) - _SPARE_DESCRIPTORS, _SPARE_DESCRIPTORS)
        self._keep_reserved(0)
        while len(self._clients) > self._limit and self._evict(""):
            pass

    def _keep_reserved(self, limit: int) -> None:
        while len(self._reserved) > limit:
            self._close(next(iter(self._reserved)))

    def restore_limit(self) -> None:
        """Allow as many connections as configured."""
        self._limit = self._limits.connections

    def _evict(self, source: str) -> bool:
        """Close a connection to make room for a source; return False if that would be unfair."""
        counts = Counter(client.source for client in self._clients)
        own_count, highest = counts[source], max(counts.values(), default=0)
        victim: ClientConnection | None
        if highest > own_count + 1:
            candidates = (client for client in self._clients if counts[client.source] == highest)
            victim = min(candidates, key=lambda client: client.state == "working")
        else:
            own = (client for client in self._clients if client.source == source)
            larger = [client for client in self._clients if counts[client.source] > own_count]
            victim = (
                next((client for client in own if client.state not in _WAITING_FOR_PODGPU), None)
                or self._next_to_evict(larger)
                or self._in_largest_network(source)
            )
        if victim is None:
            return False
        self._close(victim)
        return True

    def _next_to_evict(self, clients: Sequence[ClientConnection]) -> ClientConnection | None:
        """Return the connection that has waited longest for its client.

        Otherwise return one with most responses. A wait counts only after `_GRACE_SECONDS`. The
        second choice must have had a response, and must not be `working`. None if there is no such
        connection.
        """
        waiting = (client for client in clients if client.state not in _WAITING_FOR_PODGPU)
        longest = next(waiting, None)
        if longest is not None and _now() - longest.since >= _GRACE_SECONDS:
            return longest
        answered = [client for client in clients if client.answers and client.state != "working"]
        return max(answered, key=lambda client: client.answers, default=None)

    def _in_largest_network(self, source: str) -> ClientConnection | None:
        """Return a connection of the network that has most; None if the source is in it."""
        numbers = [number_of(client.source) for client in self._clients]
        low, high = largest_network(sorted([*numbers, number_of(source)]))
        if low <= number_of(source) <= high:
            return None
        candidates = (client for client in self._clients if low <= number_of(client.source) <= high)
        return next((client for client in candidates if client.state != "working"), None)

    def _close(self, client: ClientConnection) -> None:
        client.ended = True
        client.abort()
        self.remove(client)

    # Bytes.

    def grow(self, client: ClientConnection, size: int) -> bool:
        """Count received bytes of a body, and make room; return False if this one was evicted."""
        if client.ended:
            return False
        self._count(client, size)
        self._make_room(client)
        return not client.ended

    def grow_head(self, client: ClientConnection, size: int) -> None:
        """Count received bytes of a request head; if there is no room, evict other connections."""
        if not client.ended:
            client.head += size
            self._count(client, size)
            self._make_room(client, spare=True)

    def shrink_head(self, client: ClientConnection, size: int | None = None) -> None:
        """Stop counting `size` bytes of a request head; without `size`, all of it."""
        size = client.head if size is None else min(size, client.head)
        client.head -= size
        self.shrink(client, size)

    def _count(self, client: ClientConnection, size: int) -> None:
        client.held += size
        self._held += size
        self._holding[client] = None

    def shrink(self, client: ClientConnection, size: int) -> None:
        """Stop counting bytes of a request or a body."""
        size = min(size, client.held)  # 0 after it was evicted
        client.held -= size
        self._held -= size
        if not client.bytes:
            self._holding.pop(client, None)

    def count_until_released(self, client: ClientConnection, size: int) -> Callable[[], None]:
        """Return a function that stops counting bytes. It may be called in any thread."""
        put = self._released.append
        return lambda: put((client, size))

    @contextmanager
    def sending(self, client: ClientConnection, parts: Sequence[bytes]) -> Iterator[None]:
        """Count a response while it is being sent, and make room for it.

        Args:
            client: the connection.
            parts: parts of the response. An object that several clients get counts once.
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

    def _sent(self, client: ClientConnection) -> None:
        parts, client.answer = client.answer, ()
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
        """Return whether all bytes without those of the largest connection exceed the limit."""
        limit = self._limits.bytes
        if self._held <= limit:
            return False
        return self._held - max((client.bytes for client in self._holding), default=0) > limit

    def _largest(self, newcomer: ClientConnection) -> ClientConnection | None:
        """Return the connection that must release its bytes; None if only the newcomer can."""
        by_source: Counter[str] = Counter()
        for client in self._holding:
            if client is not newcomer:
                by_source[client.source] += client.bytes
        largest = max(by_source, key=by_source.__getitem__, default=None)
        if largest is None:
            return None
        # The newcomer's source may grow beyond the largest, but at most to twice its size.
        if by_source[newcomer.source] + newcomer.bytes > 2 * by_source[largest]:
            largest = newcomer.source
        candidates = [
            client
            for client in self._holding
            if client.source == largest and client is not newcomer
        ]
        # A response in progress is evicted only if it keeps another source out.
        last = candidates[-1] if candidates and largest != newcomer.source else None
        return next((client for client in candidates if client.state != "working"), last)

    def _displace(self, client: ClientConnection) -> None:
        client.ended = True
        self._sent(client)
        self.shrink(client, client.held)
        self._holding.pop(client, None)
        (client.cancel or client.abort)()

    def _apply_releases(self) -> None:
        while self._released:
            self.shrink(*self._released.popleft())


def _nothing() -> None:
    """Do nothing, because the connection has not started or has ended."""


def _now() -> float:
    return asyncio.get_running_loop().time()
