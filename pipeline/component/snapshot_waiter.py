"""Waits for snapshots in sinks that also do other work."""

import asyncio
from typing import Self

from pipeline.component.contracts import SinkInbox
from pipeline.model import Snapshot


class Arrivals:
    """Waits for the next snapshot, for a limited time.

    A context manager: enter it in the task that waits. After its exit, the inbox cannot be used.

    Args:
        inbox: the sink's inbox.
        latest: the newest snapshot so far; None before the first.

    Attributes:
        latest: the newest snapshot. It stays when the inbox has ended.
        closing: a future that is done once the inbox accepts no new snapshots. The sink then has
            little time left. A snapshot may still be queued.
        ended: whether the inbox is closed and empty. The sink then has to flush and return.
    """

    closing: asyncio.Future[None]
    _next: asyncio.Future[Snapshot | None]

    def __init__(self, inbox: SinkInbox, latest: Snapshot | None) -> None:
        self.latest = latest
        self.ended = False
        self._inbox = inbox
        self._snapshots = aiter(inbox)

    async def __aenter__(self) -> Self:
        """Start to wait."""
        self.closing = asyncio.ensure_future(self._inbox.wait_closed())
        self._request_next()
        try:
            # `closing` is done only after its task has run once.
            await asyncio.sleep(0)
        except BaseException:
            self._cancel()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel the wait."""
        self._cancel()

    async def wait(self, seconds: float | None) -> bool:
        """Wait for a snapshot.

        Args:
            seconds: the longest time to wait; None for no limit.

        Returns:
            Whether a snapshot has arrived; it is then in `latest`.
        """
        await asyncio.wait({self._next}, timeout=seconds)
        if not self._next.done():
            return False
        snapshot = self._next.result()
        if snapshot is None:
            self.ended = True
            return False
        self.latest = snapshot
        self._request_next()
        return True

    def _request_next(self) -> None:
        self._next = asyncio.ensure_future(anext(self._snapshots, None))

    def _cancel(self) -> None:
        self._next.cancel()
        self.closing.cancel()
