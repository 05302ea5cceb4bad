"""Snapshots as they arrive at a sink that has other things to do in between."""

import asyncio
from types import TracebackType
from typing import Self

from pipeline.component.contracts import SinkInbox
from pipeline.model import Snapshot


class Arrivals:
    """Waits for the next snapshot, but no longer than the sink has nothing else to do.

    It is entered in the task that waits; leaving it gives up the wait, and the inbox with it.

    Args:
        inbox: the sink's.
        latest: the newest snapshot so far; None before the first.

    Attributes:
        latest: likewise, with those that have arrived. The last one stays when the inbox has ended.
        closing: done once no more snapshots come in, though one may still wait: there is little
            time left. An inbox that was closed before is known to be so from the beginning.
        ended: nothing waits any more either: the sink has to flush and to return.
    """

    closing: asyncio.Future[None]
    _coming: asyncio.Future[Snapshot | None]

    def __init__(self, inbox: SinkInbox, latest: Snapshot | None) -> None:
        self.latest = latest
        self.ended = False
        self._inbox = inbox
        self._snapshots = aiter(inbox)

    async def __aenter__(self) -> Self:
        """Begin to wait."""
        self.closing = asyncio.ensure_future(self._inbox.wait_closed())
        self._ask()
        try:
            # Whether the inbox has been closed already is known once the tasks have begun.
            await asyncio.sleep(0)
        except BaseException:
            self._give_up()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Wait no more."""
        self._give_up()

    async def wait(self, seconds: float | None) -> bool:
        """Wait for a snapshot.

        Args:
            seconds: for so long at most; None for as long as it takes.

        Returns:
            Whether one has arrived; it is `latest` then.
        """
        await asyncio.wait({self._coming}, timeout=seconds)
        if not self._coming.done():
            return False
        snapshot = self._coming.result()
        if snapshot is None:
            self.ended = True
            return False
        self.latest = snapshot
        self._ask()
        return True

    def _ask(self) -> None:
        self._coming = asyncio.ensure_future(anext(self._snapshots, None))

    def _give_up(self) -> None:
        self._coming.cancel()
        self.closing.cancel()
