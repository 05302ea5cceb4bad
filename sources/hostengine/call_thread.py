"""Blocking calls on a thread, each with a deadline."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from pipeline.base.errors import TransientError
from pipeline.host.daemon_threads import DaemonExecutor

T = TypeVar("T")

_KEY: Final = "hostengine"


class Caller:
    """Makes calls one after another; outlives the runs of its source, as a hung call does.

    A call that exceeds its deadline keeps its thread, and no other call starts until it returns.
    The thread is a daemon thread, so that the process does not wait for it at its end.
    """

    def __init__(self) -> None:
        self._thread: DaemonExecutor | None = None
        self._pending: Future[Any] | None = None
        self._description = ""

    @classmethod
    def of(cls, restart_state: dict[str, object]) -> "Caller":
        """Return the caller that an earlier run left in `restart_state`, or create and keep it."""
        found = restart_state.get(_KEY)
        if not isinstance(found, cls):
            found = restart_state[_KEY] = cls()
        return found

    async def call(self, description: str, timeout_s: float, call: Callable[[], T]) -> T:
        """Make a call and return its result.

        Args:
            description: what the call does, for messages.
            timeout_s: maximum duration in seconds.
            call: the call.

        Raises:
            TransientError: the call takes longer, or an earlier one still hangs.
            Exception: what the call raised.
        """
        if self._pending is not None and not self._pending.done():
            # The last call of an earlier run may still run.
            await asyncio.wait({asyncio.wrap_future(self._pending)}, timeout=timeout_s)
            if not self._pending.done():
                raise TransientError(
                    f"{self._description} still hangs in DCGM's library; check the host engine; "
                    "restart podgpu to end the call"
                )
        if self._thread is None:
            self._thread = DaemonExecutor("podgpu-dcgm")
        self._description = description
        self._pending = pending = self._thread.submit(call)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(pending)
        except TimeoutError:
            if pending.done() and not pending.cancelled():
                return pending.result()
            raise TransientError(
                f"{description} takes more than {timeout_s:g} s; check that the host engine works"
            ) from None

    def leave(self, last: Callable[[], None]) -> None:
        """Submit a last call without waiting for it; it runs after one that still runs."""
        if self._thread is None:
            return
        if self._pending is None or self._pending.done():
            self._description = "closing the connection"
        self._pending = self._thread.submit(last)
        self._thread.shutdown()
        self._thread = None
