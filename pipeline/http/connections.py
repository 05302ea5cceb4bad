"""aiohttp's server, with a bound on what each connection and all of them hold."""

import asyncio
import logging
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import StreamReader, web, web_protocol

from pipeline.http.aiohttp_adapter import COMMON_HEADERS, too_large
from pipeline.http.client_shares import ClientAccounting, ClientConnection
from pipeline.http.limits import Limits
from pipeline.http.tls_handshake import TlsHandshake

if TYPE_CHECKING:
    from pipeline.http.access import Access

_LOG = logging.getLogger("podgpu.http")
_HEADER_BYTES = 4096
_HEADERS = 64
_READ_BYTES = 1 << 13

# Neither library has an option for these. Requests that are read before the one before them is
# answered; what more of them comes waits in the kernel.
web_protocol.MAX_MSG_QUEUE_SIZE = 2
# TLS has a buffer of this size for each connection, 256 KiB by default; a record has 16 KiB.
sslproto.SSLProtocol.max_size = 1 << 14


class Handler(web.RequestHandler):
    """Serves one connection.

    Attributes:
        client: what is counted for it.
        context: what it was secured with.
        body: of the request that is being answered, or was last.
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
        """Take a connection; called by asyncio, as the others."""
        super().connection_made(transport)
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a listener serves streams")
        self.client.abort = transport.abort
        if self.client.ended:
            transport.abort()
            return
        # What is written waits here until the kernel has taken all of it.
        transport.set_write_buffer_limits(high=1)
        if hasattr(transport, "max_size"):  # asyncio's own, of what is read at a time
            transport.max_size = _READ_BYTES

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no longer, and keep nothing that leads back here: what it holds goes at once."""
        self.server.remove(self.client)
        super().connection_lost(exc)
        self.body = None

    def data_received(self, data: bytes) -> None:
        """Take what the client sends, and count what is no body."""
        body = self.body is not None and not self.body.is_eof()
        super().data_received(data)
        guest, transport = self.client, self.transport
        if body or transport is None:
            return
        self.server.accounting.grow_head(guest, len(data))
        half = self._waiter is not None and not self._waiter.done()
        if half and guest.head > self.server.limits.head_bytes:
            transport.write(too_large(self.server.headers()))
            transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request, or what failed on the way; called by aiohttp."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers.update(self.server.headers())
        return answer


class Server(web.Server):
    """Serves connections.

    Args:
        serve: answers a request.
        limits: of what they hold, and for how long.
        accounting: where they are counted.
        access: who says on what terms a connection is taken; None for plain HTTP.
    """

    def __init__(
        self,
        serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: Limits,
        accounting: ClientAccounting,
        access: "Callable[[], Access | None]",
    ) -> None:
        # What reaches aiohttp's own log is the clients' fault: ours is caught in the listener.
        quiet = logging.getLogger("podgpu.http.clients")
        quiet.addFilter(_only_when_debugging)
        super().__init__(serve, handler_cancellation=True, request_factory=_request)
        self._options = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            "logger": quiet,
            "keepalive_timeout": limits.idle_seconds,
            "lingering_time": limits.linger_seconds,
            # Whoever takes a body bounds it by its length.
            "auto_decompress": False,
            "max_line_size": _HEADER_BYTES,
            "max_field_size": _HEADER_BYTES,
            "max_headers": _HEADERS,
            "read_bufsize": _READ_BYTES,
        }
        self.limits = limits
        self.accounting = accounting
        self._access = access
        self._guests: set[ClientConnection] = set()
        self._closing = False
        self._last_call: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()

    def headers(self) -> Mapping[str, str]:
        """Return the headers that every answer has."""
        access = self._access()
        return {**COMMON_HEADERS, **access.rules.headers} if access is not None else COMMON_HEADERS

    def protocol(self, client: ClientConnection) -> asyncio.Protocol:
        """Return what takes a connection that was just accepted."""
        self._guests.add(client)
        access = self._access()
        return self._handler(client, None) if access is None else TlsHandshake(self, access, client)

    def _handler(self, guest: ClientConnection, context: ssl.SSLContext | None) -> Handler:
        return Handler(self, guest, context, **self._options)

    def serve_connection(
        self, client: ClientConnection, transport: asyncio.Transport, context: ssl.SSLContext | None
    ) -> Handler:
        """Let a door's connection be answered."""
        handler = self._handler(client, context)
        transport.set_protocol(handler)
        handler.connection_made(transport)
        return handler

    def remove(self, client: ClientConnection) -> None:
        """Count a connection no longer."""
        self.accounting.remove(client)
        self._guests.discard(client)
        if self._closing and not self._guests:
            if self._last_call is not None:
                self._last_call.cancel()
            self._gone.set()

    def close(self, seconds: float) -> None:
        """End all connections: idle ones now, the others with their answer or when time is up."""
        for guest in [one for one in self._guests if one.state == "idle"]:
            guest.abort()
        self.pre_shutdown()
        self._closing = True
        if self._guests:
            self._last_call = asyncio.get_running_loop().call_later(seconds, self._abort)
        else:
            self._gone.set()

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""
        await self._gone.wait()

    def _abort(self) -> None:
        # A closed transport still waits for its client to read; an aborted one doesn't.
        for guest in list(self._guests):
            guest.abort()


def _request(
    message: Any,
    payload: Any,
    protocol: web.RequestHandler,
    writer: Any,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """Return a request, whatever host is in its line: it says nothing, the path does.

    aiohttp has no answer for one that is no name, such as `http://xn--/metrics`, and keeps the
    connection for as long as its client does. It has one type of message with its parser in C and
    another without, and tells of neither.
    """
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:
        message = message._replace(url=message.url.relative())
        return web.BaseRequest(message, payload, protocol, writer, task, loop)


def _only_when_debugging(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return _LOG.isEnabledFor(logging.DEBUG)
