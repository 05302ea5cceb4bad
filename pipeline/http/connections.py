"""aiohttp's server with a bound on its connections."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from pipeline.http.door import Door, Guest
from pipeline.http.limits import Limits
from pipeline.http.wire import COMMON

if TYPE_CHECKING:
    from pipeline.web import Access

_LOG = logging.getLogger("podgpu.http")
_HEADER_BYTES = 4096
_HEADERS = 64
_FULL: Final = b"too many connections\n"


class Server(web.Server):
    """Serves connections, so many at most.

    Args:
        serve: answers a request.
        limits: how many, and for how long.
        access: who says on what terms a connection is taken; None for plain HTTP.
    """

    def __init__(
        self,
        serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: Limits,
        access: "Callable[[], Access | None]",
    ) -> None:
        # What reaches aiohttp's own log is the clients' fault: ours is caught in the listener.
        quiet = logging.getLogger("podgpu.http.clients")
        quiet.addFilter(_only_when_debugging)
        super().__init__(
            serve,
            handler_cancellation=True,
            access_log=None,
            logger=quiet,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=limits.linger_seconds,
            # Whoever takes a body bounds it by its length.
            auto_decompress=False,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_HEADERS,
            request_factory=_request,
        )
        self.limits = limits
        self._access = access
        self._transports: dict[Guest, asyncio.Transport] = {}
        # Whether for the rest of a body, with the longest wait first.
        self._waiting: dict[Guest, bool] = {}
        self._contexts: dict[Guest, ssl.SSLContext] = {}
        self._closing = False
        self._last_call: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()

    def __call__(self) -> web.RequestHandler:
        """Return what answers on one connection."""
        return _Handler(self, loop=asyncio.get_running_loop(), **self._kwargs)

    def headers(self) -> Mapping[str, str]:
        """Return the headers that every answer has."""
        access = self._access()
        return {**COMMON, **access.rules.headers} if access is not None else COMMON

    def full(self) -> bytes:
        """Return the answer where there is no room for a connection."""
        head = {
            **self.headers(),
            "Connection": "close",
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Length": str(len(_FULL)),
        }
        lines = [f"{name}: {value}" for name, value in head.items()]
        return "\r\n".join(["HTTP/1.1 503 Service Unavailable", *lines, "", ""]).encode() + _FULL

    def protocol(self) -> asyncio.Protocol:
        """Return what takes a connection that was just accepted."""
        access = self._access()
        return self() if access is None else Door(self, access)

    def enter(self, guest: Guest, transport: asyncio.Transport) -> bool:
        """Count a connection; False if there is no room."""
        if self._closing or not self._has_room():
            return False
        self._transports[guest] = transport
        self._waiting[guest] = False
        return True

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a connection; called by aiohttp."""
        if not self.enter(handler, transport):
            transport.write(self.full())
            handler.force_close()
            return
        super().connection_made(handler, transport)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        """Count it no longer; called by aiohttp."""
        self.forget(handler)
        super().connection_lost(handler, exc)

    def pass_on(
        self, door: Guest, transport: asyncio.Transport, context: ssl.SSLContext | None
    ) -> web.RequestHandler:
        """Let the door's connection be answered."""
        self.forget(door)
        handler = self()
        if context is not None:
            self._contexts[handler] = context
        transport.set_protocol(handler)
        handler.connection_made(transport)
        return handler

    def context(self, handler: web.RequestHandler) -> ssl.SSLContext | None:
        """Return what a connection was secured with."""
        return self._contexts.get(handler)

    @property
    def _most(self) -> int:
        access = self._access()
        if access is None or access.rules.context is None:
            return self.limits.connections
        return self.limits.secure_connections

    def _has_room(self) -> bool:
        """Make room at the cost of the connection that has waited longest, if any waits."""
        if len(self._transports) >= self._most:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            transport = self._transports[longest]
            self.forget(longest)
            longest.force_close()
            # Else it would wait for its client to take what was written.
            transport.abort()
        return True

    def forget(self, guest: Guest) -> None:
        """Count a connection no longer."""
        self._transports.pop(guest, None)
        self._waiting.pop(guest, None)
        self._contexts.pop(guest, None)
        if self._closing and not self._transports:
            if self._last_call is not None:
                self._last_call.cancel()
            self._gone.set()

    def busy(self, handler: web.RequestHandler) -> None:
        """Note that a connection's request is being answered."""
        self._waiting.pop(handler, None)

    def idle(self, handler: web.RequestHandler) -> None:
        """Note that a connection waits for a request."""
        if handler in self._transports:
            self._waiting[handler] = False

    def receiving(self, handler: web.RequestHandler) -> None:
        """Note that a connection waits for the rest of a body; `busy` ends it."""
        if handler in self._transports:
            self._waiting[handler] = True

    def close(self, seconds: float) -> None:
        """End all connections: idle ones now, the others with their answer or when time is up."""
        for guest, for_body in list(self._waiting.items()):
            if not for_body:
                guest.force_close()
        self.pre_shutdown()
        self._closing = True
        if self._transports:
            self._last_call = asyncio.get_running_loop().call_later(seconds, self._abort)
        else:
            self._gone.set()

    async def gone(self) -> None:
        """Wait until the last connection has ended."""
        await self._gone.wait()

    def _abort(self) -> None:
        # A closed transport still waits for its client to read; an aborted one doesn't.
        for transport in list(self._transports.values()):
            transport.abort()


class _Handler(web.RequestHandler):
    """aiohttp's, whose own answers have the headers of all others."""

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request, or what failed on the way; called by aiohttp."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers.update(self._server.headers())
        return answer


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
