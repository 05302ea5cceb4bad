"""An event loop on virtual time in whole nanoseconds: no wait takes real time."""

import asyncio
import math
import selectors
from collections.abc import Mapping
from typing import Any

from pipeline.model import NS


class _SkippingSelector(selectors.BaseSelector):
    """Advance the time immediately if no file descriptor is ready."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if not found and timeout is None:
            raise RuntimeError("all tasks wait without a timeout")
        if not found and timeout:
            self.now_ns += math.ceil(timeout * NS)
        return found

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop with a virtual clock."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now_ns / NS

    @property
    def now_ns(self) -> int:
        """The time since the loop was created."""
        return self._skipping.now_ns

    async def until(self, moment_ns: int) -> None:
        """Wait until a moment, to the nanosecond."""
        while (remaining := moment_ns - self.now_ns) > 0:
            await asyncio.sleep(remaining / NS)
        self._skipping.now_ns = moment_ns
