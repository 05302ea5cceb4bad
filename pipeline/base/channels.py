"""Bounded queues that can be closed. A full queue can drop its oldest item; a callback gets it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ChannelClosedError(Exception):
    """The channel is closed: nothing can be put into it."""


class Channel(Generic[T]):
    """A bounded queue with one consumer. Its iteration ends when it is closed and empty.

    `asyncio.Queue` of Python 3.11 can't be closed. Use `put` if the producer has to wait (towards
    the join), and `offer` if a slow consumer should lose items (towards sinks).

    Args:
        capacity: maximum number of waiting items, at least 1.
        on_drop: called with each item that `offer` drops, oldest first.
    """

    def __init__(self, capacity: int, on_drop: Callable[[T], None] | None = None) -> None:
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._on_drop = on_drop
        self._ended = asyncio.Event()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether `close` was called; items may still wait."""
        return self._ended.is_set()

    async def put(self, item: T) -> None:
        """Add an item, waiting while the channel is full.

        Raises:
            ChannelClosedError: the channel is closed, or was closed while waiting.
        """
        while len(self._items) >= self._capacity and not self.closed:
            self._writable.clear()
            await self._writable.wait()
        self._append(item)

    def offer(self, item: T) -> None:
        """Add an item immediately; if the channel is full, drop the oldest waiting item.

        Raises:
            ChannelClosedError: the channel is closed.
        """
        if len(self._items) >= self._capacity and not self.closed:
            dropped = self._items.popleft()
            if self._on_drop is not None:
                self._on_drop(dropped)
        self._append(item)

    def _append(self, item: T) -> None:
        if self.closed:
            raise ChannelClosedError
        self._items.append(item)
        self._readable.set()

    def take_nowait(self) -> T | None:
        """Return the oldest item; None if no item waits."""
        if not self._items:
            return None
        item = self._items.popleft()
        self._writable.set()
        return item

    async def take(self) -> T | None:
        """Wait for the oldest item and return it; None when the channel is closed and empty."""
        while not self._items:
            if self.closed:
                return None
            self._readable.clear()
            await self._readable.wait()
        return self.take_nowait()

    async def wait_closed(self) -> None:
        """Wait until `close` is called."""
        await self._ended.wait()

    def close(self) -> None:
        """Close the channel: waiting items are still delivered, new ones are refused."""
        self._ended.set()
        self._readable.set()
        self._writable.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while (item := await self.take()) is not None:
            yield item
