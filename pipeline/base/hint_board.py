"""Hints from the join to sources that asked for them. Nobody ever waits for a hint to be taken."""

import asyncio
from collections.abc import AsyncIterator

from pipeline.model import Hint

_NONE = Hint()


class HintBoard:
    """One hint for each subscriber, into which others merge until it is taken."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.Event, Hint] = {}

    def post(self, hint: Hint) -> None:
        """Leave a hint for every subscriber."""
        for wake, pending in self._pending.items():
            self._pending[wake] = Hint(
                pending.devices | hint.devices,
                pending.pods | hint.pods,
                pending.sources | hint.sources,
            )
            wake.set()

    async def subscribe(self) -> AsyncIterator[Hint]:
        """Iterate over hints from now on; ends when the consumer stops."""
        wake = asyncio.Event()
        self._pending[wake] = _NONE
        try:
            while True:
                await wake.wait()
                wake.clear()
                taken, self._pending[wake] = self._pending[wake], _NONE
                yield taken
        finally:
            del self._pending[wake]
