"""Passes hints from the join to sources that subscribed. The join never waits for a source."""

import asyncio
from collections.abc import AsyncIterator

from pipeline.model import Hint

_NONE = Hint()


class HintBoard:
    """Holds one hint for each subscriber. Further hints are merged into it until it is read."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.Event, Hint] = {}

    def post(self, hint: Hint) -> None:
        """Post a hint to every subscriber."""
        for event, pending in self._pending.items():
            self._pending[event] = Hint(
                pending.devices | hint.devices,
                pending.pods | hint.pods,
                pending.sources | hint.sources,
            )
            event.set()

    async def subscribe(self) -> AsyncIterator[Hint]:
        """Iterate over hints from now on, until the consumer stops."""
        event = asyncio.Event()
        self._pending[event] = _NONE
        try:
            while True:
                await event.wait()
                event.clear()
                hint, self._pending[event] = self._pending[event], _NONE
                yield hint
        finally:
            del self._pending[event]
