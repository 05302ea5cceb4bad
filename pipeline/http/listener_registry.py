"""All listeners of the process, made when somebody asks for them."""

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import HttpMounts
from pipeline.host.listen_sockets import reason
from pipeline.http.allowed_hosts import Hosts
from pipeline.http.builtin_pages import Check, Front, Pages
from pipeline.http.client_shares import ClientAccounting
from pipeline.http.fair_queue import FairQueue
from pipeline.http.limits import Limits
from pipeline.http.listener import Listener, Registration

if TYPE_CHECKING:
    from pipeline.http.access import Access

_BEGUN: Final = 4
"""Answers that are begun in one round of the event loop, and as many of probes: what else the
process does waits for no more than that."""


class Listeners:
    """Owned by the runtime.

    Args:
        node: the node's name, for the page at `/`.
        version: podgpu's version, for the page at `/`.
        health: for `/healthz` and `/health`: the loop and the join do their work.
        ready: for `/readyz`: there is something to show.
        pages: what every listener serves besides, by path, with titles for the page at `/`.
        front_page: makes the page at `/`; without it, that leads to the others and no more.
        limits: for all listeners together.
        hosts: the names by which a request may ask.

    Attributes:
        access: who is let in, of all listeners; None for everybody, by plain HTTP. May be set anew
            at any time: new connections are taken on its terms, older ones end with their next
            answer.
        accounting: connections and bytes that all listeners hold.
        turns: for answers to be begun.
        probe_turns: the same on the probes' paths.
    """

    def __init__(
        self,
        *,
        node: str,
        version: str,
        health: Check,
        ready: Check,
        pages: Pages = MappingProxyType({}),
        front_page: Front | None = None,
        limits: Limits | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.node = node
        self.version = version
        self.health = health
        self.ready = ready
        self.pages = pages
        self.front_page = front_page
        self.limits = limits or Limits()
        self.accounting = ClientAccounting(self.limits)
        self.turns = FairQueue(_BEGUN)
        self.probe_turns = FairQueue(_BEGUN)
        self.access: Access | None = None
        self.hosts = hosts or Hosts()
        self._listeners: dict[ListenAddress, Listener] = {}
        self._starting = asyncio.Lock()
        self._hold_count = 0

    def listen(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        """Join the listener at an address, which starts with its first user, ends with its last.

        Raises:
            PermanentError: the address can't be listened on.
        """
        return self._listen(address)

    @asynccontextmanager
    async def _listen(self, address: ListenAddress) -> AsyncIterator[HttpMounts]:
        async with self._starting:
            listener = self._listeners.get(address) or await self._started(address)
            lease = Registration(listener)
            listener.registrations.add(lease)
        try:
            yield lease
        finally:
            lease.ended = True
            listener.registrations.discard(lease)
            if not self._hold_count:
                self._remove_ended()
                if not listener.registrations:
                    await listener.wait_closed()

    @contextmanager
    def keep_served(self) -> Iterator[None]:
        """Keep serving what is given back until the hold ends, so that a reload leaves no gap.

        A component that mounts the same path meanwhile takes it over at once.
        """
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            if not self._hold_count:
                self._remove_ended()

    async def _started(self, address: ListenAddress) -> Listener:
        listener = Listener(self, address)
        try:
            try:
                await listener.start()
            except OSError as exc:
                # A hold may keep the port for nobody but the past: `:9400` became `[::1]:9400`.
                past = [known for known in self._listeners.values() if not known.registrations]
                if exc.errno != errno.EADDRINUSE or not past:
                    raise
                self._close(past)
                await listener.start()
        except (OSError, UnicodeError) as exc:
            raise PermanentError(f"listen {address}: {reason(exc)}") from exc
        self._listeners[address] = listener
        return listener

    def _remove_ended(self) -> None:
        for listener in self._listeners.values():
            listener.remove_ended()
        self._close([known for known in self._listeners.values() if not known.registrations])

    def _close(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            del self._listeners[listener.address]
            listener.close()
