"""An event loop on virtual time: nothing waits, and time goes by whole nanoseconds."""

import asyncio
import math
import selectors
from collections.abc import Mapping
from typing import Any

from pipeline.model import NS


class _Skipping(selectors.BaseSelector):
    """Lets the time that nothing happens go by at once."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if not found and timeout is None:
            raise RuntimeError("everybody waits, and for nothing that time brings")
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
    """The loop."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now_ns / NS

    @property
    def now_ns(self) -> int:
        """The time that has passed since the loop was made."""
        return self._skipping.now_ns

    async def until(self, moment_ns: int) -> None:
        """Wait until a moment, to the nanosecond."""
        while (left := moment_ns - self.now_ns) > 0:
            await asyncio.sleep(left / NS)
        self._skipping.now_ns = moment_ns
