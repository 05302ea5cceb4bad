"""The only place that reads the machine's clocks."""

import asyncio
import time
from typing import Protocol

from pipeline.model import Instant


class Clock(Protocol):
    """Gives moments and waits. Everything that needs time gets one from its context."""

    def now(self) -> Instant:
        """Return the present moment on both clocks. Safe to call from any thread."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock; steps of the wall clock don't matter."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Instant:
        """Return the present moment on both clocks."""
        return Instant(time.monotonic_ns(), time.time_ns())

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop's clock, which is the monotonic one."""
        await asyncio.sleep(seconds)
