"""aiohttp's server, with TLS and with limits on the bytes that connections hold."""

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp import StreamReader, web, web_protocol

from pipeline.http.client_shares import ClientConnection, ClientShares
from pipeline.http.limits import Limits

if TYPE_CHECKING:
    from pipeline.http.access import AccessChecker

COMMON_HEADERS: Final[Mapping[str, str]] = {"Server": "podgpu", "X-Content-Type-Options": "nosniff"}
"""Headers of every response, including the responses that aiohttp makes."""

_LOG = logging.getLogger("podgpu.http")
_MAX_HEADER_BYTES = 4096
_MAX_HEADERS = 64
_READ_BYTES = 1 << 13

# Neither library has an option for these. The first is the number of requests that are read before
# the previous one is answered; further ones wait in the kernel.
web_protocol.MAX_MSG_QUEUE_SIZE = 2
# TLS has a buffer of this size per connection, by default 256 KiB; a TLS record has 16 KiB.
sslproto.SSLProtocol.max_size = 1 << 14


class Handler(web.RequestHandler):
    """Serves one connection.

    Attributes:
        client: counts the bytes that podgpu holds for the connection.
        access: checks the client's certificate; None without a web configuration file.
        context: TLS context of the rules with which the connection began; None for plain HTTP.
        body: body of the current request, or of the previous one.
    """

    __slots__ = ("access", "body", "client", "context", "server")

    def __init__(
        self,
        server: "Server",
        client: ClientConnection,
        access: "AccessChecker | None",
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self.server = server
        self.client = client
        self.access = access
        self.context: ssl.SSLContext | None = None
        self.body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up a connection. Abort it if its certificate is not allowed, or if it was evicted.

        Called by asyncio, as are the methods below.
        """
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - listeners are streams
        self.client.abort = transport.abort
        certificate = transport.get_extra_info("peercert")
        if self.access is not None and not self.access.allows_certificate(certificate):
            _LOG.debug("%s: the client certificate has no allowed name", self.client.source)
            self.client.ended = True
        if self.client.ended:
            transport.abort()
            return
        # `drain` waits until the kernel has accepted all written data.
        transport.set_write_buffer_limits(high=1)
        if self.context is not None:
            # asyncio has no public way to the transport below TLS.
            tls: Any = transport
            tls._ssl_protocol._transport.set_write_buffer_limits(high=1)  # noqa: SLF001
            # By default, TLS keeps 256 KiB of further requests while a response is sent.
            tls.set_read_buffer_limits(high=_READ_BYTES)
        if hasattr(transport, "max_size"):  # asyncio's own transport: bytes of one read
            transport.max_size = _READ_BYTES

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection, and drop references so that its memory is freed soon."""
        self.server.remove(self.client)
        super().connection_lost(exc)
        self.body = None

    def data_received(self, data: bytes) -> None:
        """Process received data. Respond with status 431 if the request head is too long."""
        body = self.body is not None and not self.body.is_eof()
        super().data_received(data)
        client, transport = self.client, self.transport
        if body or transport is None:
            return
        self.server.accounting.grow_head(client, len(data))
        incomplete = self._waiter is not None and not self._waiter.done()
        if incomplete and client.head > self.server.limits.head_bytes:
            transport.write(_too_large(self.server.headers()))
            transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to an invalid request, or to a failed one. Called by aiohttp."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers.update(self.server.headers())
        return answer


class Server(web.Server):
    """Serves connections.

    Args:
        serve: returns the response to a request.
        limits: limits of all connections.
        accounting: counts connections and bytes.
        access: returns the current access rules; None without a web configuration file.

    Attributes:
        empty: set while there are no connections.
    """

    def __init__(
        self,
        serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: Limits,
        accounting: ClientShares,
        access: "Callable[[], AccessChecker | None]",
    ) -> None:
        # aiohttp only logs errors of clients here: podgpu's own are handled in the listener.
        log = logging.getLogger("podgpu.http.clients")
        log.addFilter(_debug_only)
        super().__init__(serve, handler_cancellation=True, request_factory=_request)
        self._options = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            "logger": log,
            "keepalive_timeout": limits.idle_seconds,
            "lingering_time": limits.linger_seconds,
            # The reader of a body limits its encoded length.
            "auto_decompress": False,
            "max_line_size": _MAX_HEADER_BYTES,
            "max_field_size": _MAX_HEADER_BYTES,
            "max_headers": _MAX_HEADERS,
            "read_bufsize": _READ_BYTES,
        }
        self._tls_timeouts = {
            "ssl_handshake_timeout": limits.handshake_seconds,
            "ssl_shutdown_timeout": limits.close_seconds,
        }
        self.limits = limits
        self.accounting = accounting
        self._access = access
        self._clients: set[ClientConnection] = set()
        self.empty = asyncio.Event()
        self.empty.set()

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every response."""
        access = self._access()
        return {**COMMON_HEADERS, **access.rules.headers} if access is not None else COMMON_HEADERS

    async def connect(self, accepted: socket.socket, client: ClientConnection) -> None:
        """Start to serve a connection that was just accepted, with the access rules now in force.

        Returns after the TLS handshake. The connection is counted before the handshake, so that
        unfinished handshakes are limited too. A client that sends plain HTTP where TLS is required
        fails in the handshake, at its first bytes.

        Raises:
            OSError: the connection or its TLS handshake failed.
        """
        self._clients.add(client)
        self.empty.clear()
        access = self._access()
        handler = Handler(self, client, access, **self._options)
        client.abort = asyncio.current_task().cancel  # type: ignore[union-attr]
        try:
            context = None
            if access is not None:
                rules = await access.current()
                handler.context = rules.context
                context = await rules.context_of_connection()
            # From now on only asyncio closes the socket, when the event loop no longer watches it.
            own = socket.socket(accepted.family, accepted.type, accepted.proto, accepted.detach())
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler,
                own,
                ssl=context,
                **self._tls_timeouts if context is not None else {},
            )
        except (OSError, asyncio.CancelledError) as error:
            # Else the TLS objects are in a cycle of references with the traceback, and stay until
            # the next garbage collection.
            raise error.with_traceback(None)  # noqa: B904
        finally:
            if handler.transport is None:
                handler.connection_lost(None)

    def remove(self, client: ClientConnection) -> None:
        """Stop counting a connection."""
        self.accounting.remove(client)
        self._clients.discard(client)
        if not self._clients:
            self.empty.set()

    def close(self, seconds: float) -> None:
        """End all connections: idle ones now, others after their response or after `seconds`."""
        for client in [one for one in self._clients if one.state == "idle"]:
            client.abort()
        self.pre_shutdown()
        asyncio.get_running_loop().call_later(seconds, self._abort)

    def _abort(self) -> None:
        # A closed transport still waits for its client to read; an aborted one does not.
        for client in list(self._clients):
            client.abort()


def _request(
    message: Any, payload: Any, protocol: web.RequestHandler, writer: Any, task: Any
) -> web.BaseRequest:
    """Make a request object, without the host in the request line if that is invalid.

    aiohttp raises an error for a host as in `http://xn--/metrics`, sends no response, and keeps the
    connection open. The type of the message depends on aiohttp's parser and is not public.
    """
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:
        message = message._replace(url=message.url.relative())
        return web.BaseRequest(message, payload, protocol, writer, task, loop)


def _too_large(headers: Mapping[str, str]) -> bytes:
    """Return the response to a request whose head is too long.

    The rest of the request is not read.
    """
    text = b"the request header is too long\n"
    lines = [
        "HTTP/1.1 431 Request Header Fields Too Large",
        "Connection: close",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(text)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + text


def _debug_only(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return _LOG.isEnabledFor(logging.DEBUG)
