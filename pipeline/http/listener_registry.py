"""All HTTP listeners of the process. A listener starts when a component first uses it."""

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import HttpMounts
from pipeline.host.listen_sockets import reason
from pipeline.http.server_context import ServerContext

if TYPE_CHECKING:
    from pipeline.http.listener import Listener


class ListenerRegistry(ServerContext):
    """The listeners of the process, and what they share. The runtime owns it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._listeners: dict[ListenAddress, Listener] = {}
        self._starting = asyncio.Lock()
        self._hold_count = 0

    @asynccontextmanager
    async def listen(self, address: ListenAddress) -> AsyncIterator[HttpMounts]:
        """Use the listener at an address. It starts with its first user and ends with its last.

        During `keep_served`, it ends with that context.

        Raises:
            PermanentError: podgpu cannot listen on the address.
        """
        async with self._starting:
            listener = self._listeners.get(address) or await self._start(address)
            registration = listener.register()
        try:
            yield registration
        finally:
            registration.ended = True
            listener.registrations.discard(registration)
            if not self._hold_count:
                self._remove_unused()
                if not listener.registrations:
                    await listener.wait_closed()

    @contextmanager
    def keep_served(self) -> Iterator[None]:
        """Keep serving paths that components release, until the context ends.

        So a reload leaves no gap. A component that serves the same path meanwhile replaces the old
        handler immediately.
        """
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            if not self._hold_count:
                self._remove_unused()

    async def _start(self, address: ListenAddress) -> "Listener":
        # aiohttp needs 10 MB: imported only if it is used.
        from pipeline.http.listener import Listener  # noqa: PLC0415

        listener = Listener(self, address)
        try:
            try:
                await listener.start()
            except OSError as exc:
                # A listener without users may keep the port during a reload, as when `:9400` became
                # `[::1]:9400`.
                unused = [known for known in self._listeners.values() if not known.registrations]
                if exc.errno != errno.EADDRINUSE or not unused:
                    raise
                self._close(unused)
                await listener.start()
        except (OSError, UnicodeError) as exc:
            raise PermanentError(f"listen {address}: {reason(exc)}") from exc
        self._listeners[address] = listener
        return listener

    def _remove_unused(self) -> None:
        for listener in self._listeners.values():
            listener.remove_ended()
        self._close([known for known in self._listeners.values() if not known.registrations])

    def _close(self, listeners: "list[Listener]") -> None:
        for listener in listeners:
            del self._listeners[listener.address]
            listener.close()
