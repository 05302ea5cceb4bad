"""podgpu's HTTP server: listeners, TLS and passwords, according to the configuration's `http`."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from config.schema import Http
from config.value_types import ListenAddress
from pipeline.base.errors import ComponentError
from pipeline.base.logs import ROOT
from pipeline.http.listener_registry import ListenerRegistry

if TYPE_CHECKING:
    from pipeline.http.access import AccessChecker

_LOG = logging.getLogger(f"{ROOT}.http")


class HttpService:
    """Opens HTTP listeners, and applies changes of the section `http`. The runtime owns it.

    Args:
        listeners: the listeners and what they share; also an attribute.
        web_setting: name of the option with the web configuration file, for messages.
    """

    def __init__(self, listeners: ListenerRegistry, web_setting: str = "http.web_config") -> None:
        self.listeners = listeners
        self._web_setting = web_setting
        self._http = Http()
        self._lease = AsyncExitStack()

    async def enter(self, http: Http) -> None:
        """Read the web configuration file, and listen on the address `http.listen`, if set.

        Raises:
            PermanentError: the file is unusable, or podgpu cannot listen on the address.
        """
        async with self.changed(http):
            pass

    @asynccontextmanager
    async def changed(self, http: Http) -> AsyncIterator[None]:
        """Apply a changed section `http`. Paths that components release meanwhile stay served.

        An error in the body restores the previous section.

        Raises:
            PermanentError: the file is unusable, or podgpu cannot listen on the address.
        """
        before, known = self._http, self.listeners.access
        with self.listeners.keep_served():
            access = known
            if http.web_config != before.web_config:
                access = await _opened(http.web_config, self._web_setting)
            try:
                self._admit(access, http)
                if http.listen != before.listen:
                    await self._listen(http.listen)
                yield
            except BaseException:
                self._admit(known, before)
                if access is not None and access is not known:
                    access.close()
                if http.listen != before.listen:
                    try:
                        await self._listen(before.listen)
                    except ComponentError as error:
                        _LOG.error("cannot listen on the previous http.listen again: %s", error)
                raise
            self._http = http
            if known is not None and known is not access:
                known.close()

    def _admit(self, access: "AccessChecker | None", http: Http) -> None:
        listeners = self.listeners
        listeners.access = access
        listeners.hosts.allow((socket.gethostname(), listeners.node), http.allowed_hosts)

    async def _listen(self, address: ListenAddress | None) -> None:
        # The old and the new address may overlap: `:9400` and `[::1]:9400`.
        await self._lease.aclose()
        if address is not None:
            await self._lease.enter_async_context(self.listeners.listen(address))

    def rename(self, node: str) -> None:
        """Use a new node name on the page at `/` and as an allowed host name."""
        self.listeners.node = node
        self._admit(self.listeners.access, self._http)

    async def leave(self) -> None:
        """Stop listening on `http.listen`, and release all resources, in bounded time."""
        await self._lease.aclose()
        access, self.listeners.access = self.listeners.access, None
        if access is not None:
            access.close()
        self._http = Http()


async def _opened(path: Path | None, setting: str) -> "AccessChecker | None":
    if path is None:
        return None
    # Imported only if it is used, because of its libraries for certificates and passwords.
    from pipeline.http.access import open_access  # noqa: PLC0415

    return await open_access(path, _LOG, setting)
