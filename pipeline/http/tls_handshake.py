"""TLS handshake of new connections, if a web configuration file is set."""

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
    """Counts connections and serves them; see `pipeline.http.connections.Server`."""

    limits: Limits

    def remove(self, client: ClientConnection) -> None:
        """Stop counting a connection."""
        ...

    def serve_connection(
        self, client: ClientConnection, transport: asyncio.Transport, context: ssl.SSLContext | None
    ) -> asyncio.Protocol:
        """Serve the requests of a connection."""
        ...


class TlsHandshake(asyncio.Protocol):
    """Does the TLS handshake by the rules now in force, and passes the connection to the server.

    The connection is counted from the start, so that unfinished handshakes can't pile up. A client
    that sends plain HTTP where TLS is required fails in the handshake, at its first bytes.
    """

    def __init__(self, server: HandshakeServer, access: "Access", client: ClientConnection) -> None:
        self._server = server
        self._client = client
        self._access = access
        self._plain: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._early_data: list[bytes] = []
        self._lost = self._eof = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake; called by asyncio, as are the methods below."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a listener serves stream transports only")
        self._plain = transport
        self._client.abort = self.force_close
        if self._client.ended:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=1)
        # Data that arrives meanwhile is for the handler that is set next.
        transport.pause_reading()
        self._handshake = asyncio.create_task(self._open(transport), name="handshake")

    async def _open(self, plain: asyncio.Transport) -> None:
        transport = plain
        try:
            rules = await self._access.current()
            if rules.context is not None:
                transport = await self._start_tls(plain, rules.context)
                if not self._access.allows_certificate(transport.get_extra_info("peercert")):
                    _LOG.debug(
                        "%s: connection refused: the client certificate has no allowed name",
                        _address(plain),
                    )
                    self.force_close()
                    return
        except (OSError, EOFError) as error:  # errors of the TLS library are OSErrors
            _LOG.debug("%s: TLS handshake failed: %s", _address(plain), error)
            self.force_close()
            return
        except asyncio.CancelledError:
            self.force_close()
            raise
        if self._lost:
            return
        handler = self._server.serve_connection(self._client, transport, rules.context)
        for data in self._early_data:
            handler.data_received(data)
        if self._eof:
            handler.eof_received()
        if rules.context is None:
            plain.resume_reading()

    async def _start_tls(
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
        if transport is None:  # by the type stub of older Pythons: the connection was lost
            raise EOFError
        return transport

    def data_received(self, data: bytes) -> None:
        """Keep data that arrives with the end of the handshake."""
        # This is called between the handshake's end and `_open`: at most one read.
        self._early_data.append(data)

    def eof_received(self) -> None:
        """Note that the client sends no more."""
        self._eof = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Note that the connection is lost."""
        self._lost = True
        self._server.remove(self._client)

    def force_close(self) -> None:
        """Abort the connection."""
        self._lost = True
        self._server.remove(self._client)
        if self._handshake is not None and self._handshake is not asyncio.current_task():
            self._handshake.cancel()
        if self._plain is not None:
            self._plain.abort()


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("?",))[0])
