"""All HTTP listeners of the process. A listener is made when a component first uses it."""

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

_STARTS_PER_ROUND: Final = 4
"""Requests that are begun in one round of the event loop, and as many of probes. Other tasks of the
process wait for no more than that."""


class Listeners:
    """The listeners, owned by the runtime.

    Args:
        node: name of the node, for the index page.
        version: podgpu's version, for the index page.
        health: check for `/healthz` and `/health`: the event loop and the join work.
        ready: check for `/readyz`: there is data to show.
        pages: further pages of every listener, by path, with titles for the index page.
        front_page: makes the index page; without it, that is a list of links.
        limits: limits for all listeners together.
        hosts: host names that requests may use.

    Attributes:
        access: access rules of all listeners; None for everybody over plain HTTP. It may be changed
            at any time: new connections use the new rules, existing ones end with their next
            response.
        accounting: connections and bytes that all listeners hold.
        turns: queue of requests that wait to be answered.
        probe_turns: the same for the probe paths.
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
        self.turns = FairQueue(_STARTS_PER_ROUND)
        self.probe_turns = FairQueue(_STARTS_PER_ROUND)
        self.access: Access | None = None
        self.hosts = hosts or Hosts()
        self._listeners: dict[ListenAddress, Listener] = {}
        self._starting = asyncio.Lock()
        self._hold_count = 0

    def listen(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        """Use the listener at an address. It starts with its first user and ends with its last.

        Raises:
            PermanentError: the address can't be listened on.
        """
        return self._listen(address)

    @asynccontextmanager
    async def _listen(self, address: ListenAddress) -> AsyncIterator[HttpMounts]:
        async with self._starting:
            listener = self._listeners.get(address) or await self._start(address)
            registration = Registration(listener)
            listener.registrations.add(registration)
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
        """Keep serving released paths until the context ends, so that a reload leaves no gap.

        A component that mounts the same path meanwhile replaces the old handler immediately.
        """
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            if not self._hold_count:
                self._remove_unused()

    async def _start(self, address: ListenAddress) -> Listener:
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

    def _close(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            del self._listeners[listener.address]
            listener.close()
