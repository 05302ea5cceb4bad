"""Takes connections from the kernel, in an order that no source can fill."""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from pipeline.http.client_shares import ClientAccounting, ClientConnection
from pipeline.http.fair_queue import BusyError, FairQueue, source_of

_LOG = logging.getLogger("podgpu.http")

_AT_ONCE: Final = 16
"""Connections taken from the kernel in one round of the event loop."""

_OPENED: Final = 8
"""Connections that begin to be served in one."""

_WAITING: Final = 1024
"""Connections that wait for that, or a quarter of the limit of open files if that is less; what is
beyond is closed, of who has asked most."""

_PAUSE: Final = 0.1
"""Seconds without a further attempt where the process has no descriptors left."""

_LOG_INTERVAL: Final = 60.0


class Acceptor:
    """Accepts the connections of one listening socket.

    Args:
        listening: the socket.
        protocol: makes what takes a connection.
        accounting: where they are counted.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[ClientConnection], asyncio.Protocol],
        accounting: ClientAccounting,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._shares = accounting
        self._loop = asyncio.get_running_loop()
        self._turns = FairQueue(_OPENED, min(_WAITING, _most_files() // 4))
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._logged_at: float | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Give the address free at once; who isn't served yet won't be."""
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
        for _ in range(_AT_ONCE):
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
        guest = self._shares.admit(source)
        try:
            accepted.setblocking(False)
            await self._loop.connect_accepted_socket(lambda: self._protocol(guest), accepted)
        except OSError:
            accepted.close()
            self._shares.remove(guest)

    def _opened(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if task.cancelled():  # maybe before it began
            accepted.close()

    def _on_no_descriptors(self, error: OSError) -> None:
        """Wait until there are descriptors again, and close connections for that."""
        self._loop.remove_reader(self._listening)
        self._retry = self._loop.call_later(_PAUSE, self._resume)
        self._shares.reduce_limit()
        now = self._loop.time()
        if self._logged_at is None or now - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = now
            self._loop.call_later(_LOG_INTERVAL, self._shares.restore_limit)
            _LOG.warning(
                "%s: a connection can't be accepted: %s. podgpu takes fewer connections for a "
                "minute, and closes those of the clients that have most. Raise the limit of open "
                "files (ulimit -n), which is %d",
                self._listening.getsockname()[:2],
                error.strerror,
                _most_files(),
            )


def _most_files() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if most != resource.RLIM_INFINITY else 1 << 20
