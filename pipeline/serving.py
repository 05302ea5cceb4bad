"""What the process serves by HTTP: its listeners, and who is let in."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from config.schema import Http
from config.types import ListenAddress
from pipeline.contracts import HttpMounts
from pipeline.errors import ComponentError
from pipeline.hosts import Hosts
from pipeline.logs import ROOT
from pipeline.pages import Check, Front, Pages
from pipeline.version import VERSION

if TYPE_CHECKING:
    from pipeline.http import Limits, Listeners
    from pipeline.web import Access

_LOG = logging.getLogger(f"{ROOT}.http")


class Serving:
    """Owned by the runtime.

    Args:
        node: the node's name.
        health: whether podgpu works.
        ready: whether it has something to show.
        pages: what is served besides, by path, with titles for the page at `/`.
        front: makes the page at `/`.
        web_setting: what the setting that names the web config is called, for messages.
        hosts_setting: likewise, the one that allows further hosts.
        limits: what all clients together may use; None for the usual ones.
    """

    def __init__(
        self,
        node: str,
        health: Check,
        ready: Check,
        pages: Pages = MappingProxyType({}),
        front: Front | None = None,
        *,
        web_setting: str = "http.web_config",
        hosts_setting: str = "http.allowed_hosts",
        limits: "Limits | None" = None,
    ) -> None:
        self._node = node
        self._health = health
        self._ready = ready
        self._pages = pages
        self._front = front
        self._web_setting = web_setting
        self._hosts = Hosts(hosts_setting)
        self._limits = limits
        self._http = Http()
        self._listeners: Listeners | None = None
        self._access: Access | None = None
        self._lease: AbstractAsyncContextManager[HttpMounts] | None = None

    async def enter(self, http: Http) -> None:
        """Read the web config and listen where no sink need be.

        Raises:
            PermanentError: that can't be had.
        """
        async with self.changed(http):
            pass

    def listen(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        """Join the listener at an address, which starts with its first user.

        Raises:
            PermanentError: on entry, the address can't be listened on.
        """
        if self._listeners is None:
            # An HTTP server costs 10 MB: not without somebody who wants one.
            from pipeline.http import Listeners  # noqa: PLC0415

            self._listeners = Listeners(
                node=self._node,
                version=VERSION,
                health=self._health,
                ready=self._ready,
                pages=self._pages,
                front=self._front,
                hosts=self._hosts,
                limits=self._limits,
            )
            self._listeners.access = self._access
        return self._listeners.listen(address)

    @asynccontextmanager
    async def changed(self, http: Http) -> AsyncIterator[None]:
        """Take over a section `http`, while paths that are given back stay served.

        Whatever fails inside puts everything back.

        Raises:
            PermanentError: it asks for what can't be had.
        """
        before, known, past = self._http, self._access, self._lease
        with self._listeners.hold() if self._listeners is not None else nullcontext():
            access = known
            if http.web_config != before.web_config:
                access = await _opened(http.web_config, self._web_setting)
            try:
                self._admit(access, http)
                if http.listen != before.listen:
                    # The new address may be a part of the old one: `:9400` became `[::1]:9400`.
                    await self._give_back()
                    await self._take(http.listen)
                yield
            except BaseException:
                self._admit(known, before)
                if access is not None and access is not known:
                    access.close()
                if self._lease is not past:
                    await self._restore(before.listen)
                raise
            self._http = http
            if known is not None and known is not access:
                known.close()

    def _admit(self, access: "Access | None", http: Http) -> None:
        self._access = access
        self._hosts.allow((socket.gethostname(), self._node), http.allowed_hosts)
        if self._listeners is not None:
            self._listeners.access = access

    async def _take(self, address: ListenAddress | None) -> None:
        if address is not None:
            lease = self.listen(address)
            await lease.__aenter__()
            self._lease = lease

    async def _give_back(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.__aexit__(None, None, None)

    async def _restore(self, address: ListenAddress | None) -> None:
        await self._give_back()
        try:
            await self._take(address)
        except ComponentError as error:
            _LOG.error("http.listen: %s", error)

    def rename(self, node: str) -> None:
        """Show another name of the node on the page at `/`."""
        self._node = node
        self._hosts.allow((socket.gethostname(), node), self._http.allowed_hosts)
        if self._listeners is not None:
            self._listeners.node = node

    async def leave(self) -> None:
        """Give everything back. Bounded in time."""
        await self._give_back()
        access, self._access = self._access, None
        if access is not None:
            access.close()
        self._http = Http()


async def _opened(path: Path | None, setting: str) -> "Access | None":
    if path is None:
        return None
    # Not without somebody who wants it: certificates and passwords have libraries of their own.
    from pipeline.web import opened  # noqa: PLC0415

    return await opened(path, _LOG, setting)
