"""Accepts connections from the kernel, in fair order among client addresses."""

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from pipeline.http.client_shares import ClientConnection, ClientShares
from pipeline.http.fair_queue import BusyError, FairQueue, source_of

_LOG = logging.getLogger("podgpu.http")

_ACCEPTS_PER_ROUND: Final = 16
"""Maximum number of connections that are accepted in one round of the event loop."""

_STARTS_PER_ROUND: Final = 8
"""Maximum number of connections that begin to be served in one round of the event loop."""

_MAX_WAITING: Final = 1024
"""Maximum number of accepted connections that wait to be served; a quarter of the limit of open
files if that is less. Above it, podgpu closes connections of the client with most requests."""

_RETRY_SECONDS: Final = 0.1
"""Seconds until the next attempt after a failed accept, such as without free file descriptors."""

_LOG_INTERVAL: Final = 60.0


class Acceptor:
    """Accepts the connections of one listening socket.

    Args:
        listening: the listening socket.
        serve: starts to serve an accepted connection.
        accounting: counts the connections of all listeners.
    """

    def __init__(
        self,
        listening: socket.socket,
        serve: Callable[[socket.socket, ClientConnection], Awaitable[None]],
        accounting: ClientShares,
    ) -> None:
        self._listening = listening
        self._serve = serve
        self._accounting = accounting
        self._loop = asyncio.get_running_loop()
        self._turns = FairQueue(_STARTS_PER_ROUND, min(_MAX_WAITING, _max_open_files() // 4))
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._logged_at: float | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Release the address, and close accepted connections that are not served yet."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in self._opening:
            task.cancel()

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_ROUND):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_no_descriptors(error)
                return
            task = self._loop.create_task(self._open(accepted, source_of(peer[0])))
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, accepted))

    async def _open(self, accepted: socket.socket, source: str) -> None:
        try:
            await self._turns.acquire(source)
        except BusyError:
            accepted.close()
            return
        self._loop.call_soon(self._turns.release)
        client = self._accounting.admit(source)
        try:
            accepted.setblocking(False)
            await self._serve(accepted, client)
        except OSError as error:
            _LOG.debug("%s: the connection could not be opened: %s", source, error)
            accepted.close()

    def _opened(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if task.cancelled():  # possibly before it started
            accepted.close()

    def _on_no_descriptors(self, error: OSError) -> None:
        """Pause accepting, and close connections to free file descriptors."""
        self._loop.remove_reader(self._listening)
        self._retry = self._loop.call_later(_RETRY_SECONDS, self._resume)
        self._accounting.reduce_limit()
        now = self._loop.time()
        if self._logged_at is None or now - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = now
            self._loop.call_later(_LOG_INTERVAL, self._accounting.restore_limit)
            _LOG.warning(
                "%s: cannot accept a connection: %s. For a minute podgpu accepts fewer "
                "connections, and closes connections of the clients that have most. Raise the "
                "limit of open files (ulimit -n), which is %d",
                self._listening.getsockname()[:2],
                error.strerror,
                _max_open_files(),
            )


def _max_open_files() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if most != resource.RLIM_INFINITY else 1 << 20
