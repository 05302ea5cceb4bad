"""The door that a connection comes through where a web config says on what terms it is taken."""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Protocol

from pipeline.http.client_shares import ClientConnection
from pipeline.http.limits import Limits

if TYPE_CHECKING:
    from pipeline.http.access import Access

_LOG = logging.getLogger("podgpu.http")


class HandshakeServer(Protocol):
    """What counts connections and answers them; see `pipeline.http.connections.Server`."""

    limits: Limits

    def remove(self, client: ClientConnection) -> None:
        """Count a connection no longer."""
        ...

    def serve_connection(
        self, client: ClientConnection, transport: asyncio.Transport, context: ssl.SSLContext | None
    ) -> asyncio.Protocol:
        """Let a connection be answered."""
        ...


class TlsHandshake(asyncio.Protocol):
    """Takes a connection on the terms that are in force now, and passes it on.

    It is counted from here on, so that handshakes that never end can't pile up. A client that
    speaks plain HTTP where TLS is wanted fails in the handshake, with its first bytes.
    """

    def __init__(self, server: HandshakeServer, access: "Access", client: ClientConnection) -> None:
        self._server = server
        self._client = client
        self._access = access
        self._plain: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self._lost = self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection; called by asyncio, as the others."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a listener serves streams")
        self._plain = transport
        self._client.abort = self.force_close
        if self._client.ended:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=1)
        # What is sent meanwhile is for whoever comes after us.
        transport.pause_reading()
        self._opening = asyncio.create_task(self._open(transport), name="handshake")

    async def _open(self, plain: asyncio.Transport) -> None:
        transport = plain
        try:
            rules = await self._access.current()
            if rules.context is not None:
                transport = await self._secured(plain, rules.context)
                if not self._access.allows_certificate(transport.get_extra_info("peercert")):
                    _LOG.debug("%s: the certificate has no allowed name", _address(plain))
                    self.force_close()
                    return
        except (OSError, EOFError) as error:  # those of the TLS library are OSErrors
            _LOG.debug("%s: no TLS: %s", _address(plain), error)
            self.force_close()
            return
        except asyncio.CancelledError:
            self.force_close()
            raise
        if self._lost:
            return
        handler = self._server.serve_connection(self._client, transport, rules.context)
        for data in self._early:
            handler.data_received(data)
        if self._ended:
            handler.eof_received()
        if rules.context is None:
            plain.resume_reading()

    async def _secured(
        self, plain: asyncio.Transport, context: ssl.SSLContext
    ) -> asyncio.Transport:
        transport = await asyncio.get_running_loop().start_tls(
            plain,
            self,
            context,
            server_side=True,
            ssl_handshake_timeout=self._server.limits.handshake_seconds,
            ssl_shutdown_timeout=self._server.limits.close_seconds,
        )
        if transport is None:  # says the stub of older Pythons: lost meanwhile
            raise EOFError
        return transport

    def data_received(self, data: bytes) -> None:
        """Keep what comes with the last word of the handshake."""
        # Between the handshake's end and our turn in the loop: one read at most.
        self._early.append(data)

    def eof_received(self) -> None:
        """Note that no more will come."""
        self._ended = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Note that the client has gone."""
        self._lost = True
        self._server.remove(self._client)

    def force_close(self) -> None:
        """End the connection."""
        self._lost = True
        self._server.remove(self._client)
        if self._opening is not None and self._opening is not asyncio.current_task():
            self._opening.cancel()
        if self._plain is not None:
            self._plain.abort()


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("?",))[0])
