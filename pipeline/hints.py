"""Hints from the join to sources that asked for them. Nobody ever waits for a hint to be taken."""

import asyncio
from collections.abc import AsyncIterator

from pipeline.model import HolderChanged


class HintBoard:
    """One set of devices for each subscriber, in which hints merge until they are taken."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.Event, set[str]] = {}

    def post(self, hint: HolderChanged) -> None:
        """Leave a hint for every subscriber."""
        for wake, devices in self._pending.items():
            devices.update(hint.devices)
            wake.set()

    async def subscribe(self) -> AsyncIterator[HolderChanged]:
        """Iterate over hints from now on; ends when the consumer stops."""
        wake = asyncio.Event()
        devices = self._pending[wake] = set()
        try:
            while True:
                await wake.wait()
                wake.clear()
                taken = frozenset(devices)
                devices.clear()
                yield HolderChanged(taken)
        finally:
            del self._pending[wake]
