"""The HTTP listeners: one per address, shared by every component that has something to show.

The only module that imports `aiohttp.web`. A listener outlives the components that mount paths on
it, and it defends the process: a scraper that reads or writes slowly costs itself, nobody else.
"""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

from aiohttp import web

from config.types import ListenAddress
from pipeline.contracts import HttpHandler, HttpMounts, HttpRequest, HttpResponse
from pipeline.errors import PermanentError
from pipeline.pages import Check, checked, index, plain
from pipeline.sockets import BACKLOG, bind, reason

_LOG = logging.getLogger("podgpu.http")
_CHUNK = 1 << 16
_HEADER_BYTES = 4096
_HEADERS = 64
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nServer: podgpu\r\nConnection: close\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 21\r\n\r\ntoo many connections\n"
)
_READ_ONLY = {"GET", "HEAD"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one listener spends on its clients.

    Attributes:
        connections: open at most. A further one takes the place of the connection that has waited
            longest for a request; if all are being answered it gets 503.
        idle_seconds: how long a connection may be without a complete request, which bounds both
            idle and very slow clients. Longer than a usual scrape interval.
        handler_seconds: for working an answer out.
        send_seconds: for the client to take the answer.
        close_seconds: for answers under way when the listener closes.
    """

    connections: int = 512
    idle_seconds: float = 75
    handler_seconds: float = 10
    send_seconds: float = 30
    close_seconds: float = 1


@dataclass(frozen=True, slots=True, eq=False)
class _Mount:
    handler: HttpHandler
    title: str
    lease: "_Lease"


class _Server(web.Server):
    """aiohttp's server with a bound on its connections."""

    def __init__(self, listener: "_Listener", limits: Limits) -> None:
        # What reaches aiohttp's own log is the clients' fault: ours is caught in `_Listener`.
        quiet = logging.getLogger("podgpu.http.clients")
        quiet.addFilter(_only_when_debugging)
        super().__init__(
            listener.serve,
            handler_cancellation=True,
            access_log=None,
            logger=quiet,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=0,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_HEADERS,
        )
        self._most = limits.connections
        self._transports: dict[web.RequestHandler, asyncio.Transport] = {}
        self._waiting: dict[web.RequestHandler, None] = {}
        self._closing = False
        self._last_call: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        if self._closing or not self._has_room():
            transport.write(_FULL)
            handler.force_close()
            return
        self._transports[handler] = transport
        self._waiting[handler] = None
        super().connection_made(handler, transport)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        self._forget(handler)
        super().connection_lost(handler, exc)

    def _has_room(self) -> bool:
        """Make room at the cost of the connection that has waited longest, if any waits."""
        if len(self._transports) >= self._most:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            transport = self._transports[longest]
            self._forget(longest)
            longest.force_close()
            # Else it would wait for its client to take what was written.
            transport.abort()
        return True

    def _forget(self, handler: web.RequestHandler) -> None:
        self._transports.pop(handler, None)
        self._waiting.pop(handler, None)
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
            self._waiting[handler] = None

    def close(self, seconds: float) -> None:
        """End all connections: idle ones now, the others with their answer or when time is up."""
        for handler in list(self._waiting):
            handler.force_close()
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
        for transport in self._transports.values():
            transport.abort()


def _only_when_debugging(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return _LOG.isEnabledFor(logging.DEBUG)


class _Lease:
    """Implements `HttpMounts`: one component's part of a listener."""

    def __init__(self, listener: "_Listener") -> None:
        self.listener = listener
        self.ended = False

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self.listener.port

    def mount(self, path: str, handler: HttpHandler, *, title: str) -> None:
        """Serve a path until the lease ends.

        Raises:
            PermanentError: the path is no path, or somebody else serves it.
        """
        if self.ended:
            raise RuntimeError(f"{path} is mounted on a listener that was given back")
        self.listener.mount(path, _Mount(handler, title, self))


class _Listener:
    """One address: routes requests to what is mounted."""

    def __init__(self, owner: "Listeners", address: ListenAddress) -> None:
        self.address = address
        self.port = address.port
        self.leases: set[_Lease] = set()
        self._owner = owner
        self._mounts: dict[str, _Mount] = {}
        self._server: _Server | None = None
        self._sockets: asyncio.Server | None = None
        self._own: dict[str, HttpHandler] = {
            "/": self._index,
            "/healthz": self._health,
            "/health": self._health,
            "/readyz": self._readiness,
        }

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address can't be listened on.
        """
        listening = await bind(self.address)
        self._server = _Server(self, self._owner.limits)
        self.port = listening.getsockname()[1]
        self._sockets = await asyncio.get_running_loop().create_server(
            self._server, sock=listening, backlog=BACKLOG
        )
        host = self.address.host or "localhost"
        _LOG.info("serving http://%s:%d/", f"[{host}]" if ":" in host else host, self.port)

    def close(self) -> None:
        """Give the address free at once; answers under way have a little longer."""
        if self._sockets is not None and self._server is not None:
            self._sockets.close()
            self._server.close(self._owner.limits.close_seconds)

    async def gone(self) -> None:
        """Wait, after `close`, until the last connection has ended."""
        if self._server is not None:
            await self._server.gone()

    def mount(self, path: str, mount: _Mount) -> None:
        """Serve a path; what is left of an ended lease gives way."""
        where = f"{self.address}{path}"
        if not path.startswith("/") or any(c in path for c in "?#") or not path.isprintable():
            raise PermanentError(f"serve {where}: a path begins with / and has no ? and no #")
        if path in self._own:
            raise PermanentError(f"serve {where}: podgpu's own page is there, choose another path")
        known = self._mounts.get(path)
        if known is not None and not known.lease.ended:
            raise PermanentError(
                f"serve {where}: another component is there ({known.title}), choose another path"
            )
        self._mounts[path] = mount

    def reap(self) -> None:
        """Drop what ended leases left behind."""
        self._mounts = {
            path: mount for path, mount in self._mounts.items() if not mount.lease.ended
        }

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; called by aiohttp."""
        server = self._server
        assert server is not None  # noqa: S101 - there are no requests before the start
        server.busy(request.protocol)
        try:
            return await self._send(request, await self._answer(request))
        finally:
            server.idle(request.protocol)

    async def _answer(self, request: web.BaseRequest) -> HttpResponse:
        path = request.path
        mount = self._mounts.get(path)
        handler = mount.handler if mount is not None else self._own.get(path)
        if handler is None:
            return plain(404, "nothing is here; / lists what there is")
        if request.method not in _READ_ONLY:
            return plain(405, "only GET and HEAD are served", {"Allow": "GET, HEAD"})
        deadline = asyncio.timeout(self._owner.limits.handler_seconds)
        try:
            async with deadline:
                return await handler(_request(request, path))
        except Exception:  # noqa: BLE001 - whatever a handler does, others are served
            if deadline.expired():
                _LOG.warning("%s%s: no answer in time", self.address, path)
                return plain(503, f"{path} took too long")
            _LOG.exception("%s%s: the answer failed", self.address, path)
            return plain(500, f"{path} failed; podgpu's log says why")

    async def _send(self, request: web.BaseRequest, answer: HttpResponse) -> web.StreamResponse:
        """Write in pieces: what waits for a slow client is one piece, not the whole page."""
        headers = {"Server": "podgpu", "X-Content-Type-Options": "nosniff", **answer.headers}
        headers["Content-Type"] = answer.content_type
        response = web.StreamResponse(status=answer.status, headers=headers)
        tail = answer.tail
        response.content_length = len(answer.body) + len(tail)
        try:
            async with asyncio.timeout(self._owner.limits.send_seconds):
                await response.prepare(request)
                if request.method != "HEAD":
                    for part in (memoryview(answer.body), memoryview(tail)):
                        for start in range(0, len(part), _CHUNK):
                            await response.write(part[start : start + _CHUNK])
                await response.write_eof()
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _index(self, _: HttpRequest) -> HttpResponse:
        mounts = [(path, mount.title) for path, mount in sorted(self._mounts.items())]
        return index(self._owner.node, self._owner.version, mounts)

    async def _health(self, _: HttpRequest) -> HttpResponse:
        return checked(self._owner.health)

    async def _readiness(self, _: HttpRequest) -> HttpResponse:
        return checked(self._owner.ready)


class Listeners:
    """All listeners of the process, made when somebody asks for them. Owned by the runtime.

    Args:
        node: the node's name, for the page at `/`.
        version: podgpu's version, for the page at `/`.
        health: for `/healthz` and `/health`: the loop and the join do their work.
        ready: for `/readyz`: there is something to show.
        limits: the same for every listener.
    """

    def __init__(
        self, *, node: str, version: str, health: Check, ready: Check, limits: Limits | None = None
    ) -> None:
        self.node = node
        self.version = version
        self.health = health
        self.ready = ready
        self.limits = limits or Limits()
        self._listeners: dict[ListenAddress, _Listener] = {}
        self._starting = asyncio.Lock()
        self._holds = 0

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
            lease = _Lease(listener)
            listener.leases.add(lease)
        try:
            yield lease
        finally:
            lease.ended = True
            listener.leases.discard(lease)
            if not self._holds:
                self._reap()
                if not listener.leases:
                    await listener.gone()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep serving what is given back until the hold ends, so that a reload leaves no gap.

        A component that mounts the same path meanwhile takes it over at once.
        """
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._reap()

    async def _started(self, address: ListenAddress) -> _Listener:
        listener = _Listener(self, address)
        try:
            try:
                await listener.start()
            except OSError as exc:
                # A hold may keep the port for nobody but the past: `:9400` became `[::1]:9400`.
                past = [known for known in self._listeners.values() if not known.leases]
                if exc.errno != errno.EADDRINUSE or not past:
                    raise
                self._close(past)
                await listener.start()
        except (OSError, UnicodeError) as exc:
            raise PermanentError(f"listen {address}: {reason(exc)}") from exc
        self._listeners[address] = listener
        return listener

    def _reap(self) -> None:
        for listener in self._listeners.values():
            listener.reap()
        self._close([known for known in self._listeners.values() if not known.leases])

    def _close(self, listeners: list[_Listener]) -> None:
        for listener in listeners:
            del self._listeners[listener.address]
            listener.close()


def _request(request: web.BaseRequest, path: str) -> HttpRequest:
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()  # noqa: PLW2901
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpRequest(request.method, path, dict(request.query), headers)
