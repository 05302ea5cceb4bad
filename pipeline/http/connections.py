"""aiohttp's server, with limits on what connections hold, and the TLS handshake before it."""

import asyncio
import logging
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp import StreamReader, web, web_protocol

from pipeline.http.client_shares import ClientConnection, ClientShares
from pipeline.http.limits import Limits

if TYPE_CHECKING:
    from pipeline.http.access import Access

COMMON_HEADERS: Final[Mapping[str, str]] = {"Server": "podgpu", "X-Content-Type-Options": "nosniff"}
"""Headers of every response, including those that aiohttp makes."""

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
        client: counts what the connection holds.
        context: TLS context of the connection.
        body: body of the current request, or of the last.
    """

    __slots__ = ("body", "client", "context", "server")

    def __init__(
        self,
        server: "Server",
        client: ClientConnection,
        context: ssl.SSLContext | None,
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self.server = server
        self.client = client
        self.context = context
        self.body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up a connection; called by asyncio, as are the methods below."""
        super().connection_made(transport)
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a listener serves stream transports only")
        self.client.abort = transport.abort
        if self.client.ended:
            transport.abort()
            return
        # `drain` waits until the kernel has accepted all written data.
        transport.set_write_buffer_limits(high=1)
        if hasattr(transport, "max_size"):  # asyncio's own transport: bytes of one read
            transport.max_size = _READ_BYTES

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection, and drop references so that its memory is freed now."""
        self.server.remove(self.client)
        super().connection_lost(exc)
        self.body = None

    def data_received(self, data: bytes) -> None:
        """Process received data, and count what is not part of a body."""
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
        """Respond to an invalid request, or after a failed response; called by aiohttp."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers.update(self.server.headers())
        return answer


class Server(web.Server):
    """Serves connections.

    Args:
        serve: answers a request.
        limits: limits of connections.
        accounting: counts connections and bytes.
        access: returns the access rules; None for plain HTTP.
    """

    def __init__(
        self,
        serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: Limits,
        accounting: ClientShares,
        access: "Callable[[], Access | None]",
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
        self.limits = limits
        self.accounting = accounting
        self._access = access
        self._clients: set[ClientConnection] = set()
        self._closing = False
        self._abort_timer: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every response."""
        access = self._access()
        return {**COMMON_HEADERS, **access.rules.headers} if access is not None else COMMON_HEADERS

    def protocol(self, client: ClientConnection) -> asyncio.Protocol:
        """Return the protocol for a connection that was just accepted."""
        self._clients.add(client)
        access = self._access()
        return (
            TlsHandshake(self, access, client)
            if access is not None
            else Handler(self, client, None, **self._options)
        )

    def serve_connection(
        self, client: ClientConnection, transport: asyncio.Transport, context: ssl.SSLContext | None
    ) -> Handler:
        """Serve a connection after its TLS handshake."""
        handler = Handler(self, client, context, **self._options)
        transport.set_protocol(handler)
        handler.connection_made(transport)
        return handler

    def remove(self, client: ClientConnection) -> None:
        """Stop counting a connection."""
        self.accounting.remove(client)
        self._clients.discard(client)
        if self._closing and not self._clients:
            if self._abort_timer is not None:
                self._abort_timer.cancel()
            self._closed.set()

    def close(self, seconds: float) -> None:
        """End all connections: idle ones now, the others after their response or the given time."""
        for client in [one for one in self._clients if one.state == "idle"]:
            client.abort()
        self.pre_shutdown()
        self._closing = True
        if self._clients:
            self._abort_timer = asyncio.get_running_loop().call_later(seconds, self._abort)
        else:
            self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""
        await self._closed.wait()

    def _abort(self) -> None:
        # A closed transport still waits for its client to read; an aborted one does not.
        for client in list(self._clients):
            client.abort()


class TlsHandshake(asyncio.Protocol):
    """Does the TLS handshake by the rules now in force, and passes the connection to the server.

    The connection is counted from the start, so that unfinished handshakes can't pile up. A client
    that sends plain HTTP where TLS is required fails in the handshake, at its first bytes.
    """

    def __init__(self, server: Server, access: "Access", client: ClientConnection) -> None:
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


def _request(
    message: Any,
    payload: Any,
    protocol: web.RequestHandler,
    writer: Any,
    task: "asyncio.Task[None]",
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
    """Return the response to a request whose head is too long; the rest of it is not read."""
    text = b"the request header is too long\n"
    head = {
        **headers,
        "Connection": "close",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(text)),
    }
    lines = [f"{name}: {value}" for name, value in head.items()]
    first = "HTTP/1.1 431 Request Header Fields Too Large"
    return "\r\n".join([first, *lines, "", ""]).encode() + text


def _debug_only(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return _LOG.isEnabledFor(logging.DEBUG)


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("?",))[0])
