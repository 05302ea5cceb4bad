"""Bounded, closable queues. Nothing in podgpu is unbounded, and nothing is dropped uncounted."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ChannelClosedError(Exception):
    """The channel was closed: nothing can be put into it any more."""


class Channel(Generic[T]):
    """A bounded queue with one consumer that ends when it is closed and drained.

    Python 3.11's `asyncio.Queue` can't be shut down. Use `put` where the producer has to wait
    (towards the join) and `offer` where the consumer may only hurt itself (towards sinks).

    Args:
        capacity: how many items wait at most.
        on_drop: called with each item that `offer` pushed out, the oldest first.
    """

    def __init__(self, capacity: int, on_drop: Callable[[T], None] | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"a channel holds at least one item, not {capacity}")
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._on_drop = on_drop
        self._closed = False
        self._ended = asyncio.Event()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether `close` was called; items may still wait."""
        return self._closed

    async def put(self, item: T) -> None:
        """Add an item, waiting while the channel is full.

        Raises:
            ChannelClosedError: the channel is closed, or was closed while waiting.
        """
        while len(self._items) >= self._capacity and not self._closed:
            self._writable.clear()
            await self._writable.wait()
        self._append(item)

    def offer(self, item: T) -> None:
        """Add an item at once; a full channel drops its oldest one and counts it.

        Raises:
            ChannelClosedError: the channel is closed.
        """
        if len(self._items) >= self._capacity and not self._closed:
            dropped = self._items.popleft()
            if self._on_drop is not None:
                self._on_drop(dropped)
        self._append(item)

    def _append(self, item: T) -> None:
        if self._closed:
            raise ChannelClosedError
        self._items.append(item)
        self._readable.set()

    def take_nowait(self) -> T | None:
        """Return the oldest item, or None when none waits."""
        if not self._items:
            return None
        item = self._items.popleft()
        self._writable.set()
        return item

    async def take(self) -> T | None:
        """Return the oldest item, waiting for one; None once the channel is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            self._readable.clear()
            await self._readable.wait()
        return self.take_nowait()

    async def wait_closed(self) -> None:
        """Wait until `close` is called."""
        await self._ended.wait()

    def close(self) -> None:
        """End the channel: what waits is still delivered, nothing more is taken in."""
        self._closed = True
        self._ended.set()
        self._readable.set()
        self._writable.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while (item := await self.take()) is not None:
            yield item
