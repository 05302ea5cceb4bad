"""Blocking calls on a thread of their own, each with a deadline."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from pipeline.base.errors import TransientError
from pipeline.host.daemon_threads import DaemonExecutor

T = TypeVar("T")

_KEY: Final = "hostengine"


class Caller:
    """Makes calls one after another; outlives the runs of its source, as a stuck call does.

    A call that doesn't return in time keeps its thread, and no other is started until it has come
    back. The thread is a daemon, so that the process doesn't wait for it either.
    """

    def __init__(self) -> None:
        self._thread: DaemonExecutor | None = None
        self._pending: Future[Any] | None = None
        self._what = ""

    @classmethod
    def of(cls, restart_state: dict[str, object]) -> "Caller":
        """Return what an earlier run left in `ctx.kept`; leave it there at the first run."""
        found = restart_state.get(_KEY)
        if not isinstance(found, cls):
            found = restart_state[_KEY] = cls()
        return found

    async def call(self, what: str, within: float, call: Callable[[], T]) -> T:
        """Make a call and return its result.

        Args:
            what: it does, for people.
            within: seconds.
            call: what to call.

        Raises:
            TransientError: it takes longer, or an earlier one still hangs.
            Exception: what it raised.
        """
        if self._pending is not None and not self._pending.done():
            # An earlier run's last call may be on its way.
            await asyncio.wait({asyncio.wrap_future(self._pending)}, timeout=within)
            if not self._pending.done():
                raise TransientError(
                    f"{self._what} still hangs in DCGM's library; see that the host engine is "
                    "well; a restart of podgpu gets rid of the call"
                )
        if self._thread is None:
            self._thread = DaemonExecutor("podgpu-dcgm")
        self._what = what
        self._pending = pending = self._thread.submit(call)
        try:
            async with asyncio.timeout(within):
                return await asyncio.wrap_future(pending)
        except TimeoutError:
            if pending.done() and not pending.cancelled():
                return pending.result()
            raise TransientError(
                f"{what} takes more than {within:g} s; see that the host engine is well"
            ) from None

    def leave(self, last: Callable[[], None]) -> None:
        """Make a last call without waiting for it, after the one that may be on its way."""
        if self._thread is None:
            return
        if self._pending is None or self._pending.done():
            self._what = "closing the connection"
        self._pending = self._thread.submit(last)
        self._thread.shutdown()
        self._thread = None
