"""One HTTP listener: accepts connections on an address and routes requests to handlers."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from config.message_text import shown
from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import READ_ONLY, HttpHandler, HttpRequest, HttpResponse, Refusal
from pipeline.host.listen_sockets import bind
from pipeline.http.acceptor import Acceptor
from pipeline.http.body_limit import BodyRefusedError, read_body
from pipeline.http.builtin_pages import check_page, index, links, plain
from pipeline.http.client_shares import ClientConnection
from pipeline.http.connections import COMMON_HEADERS, Handler, Server
from pipeline.http.server_context import ServerContext

if TYPE_CHECKING:
    from pipeline.http.access import AccessChecker

_LOG = logging.getLogger("podgpu.http")
_MAX_LOGGED = 60
_ROOM_TRIES = 18
_ROOM_INTERVAL = 0.05
_FULL = plain(503, "too many connections")


@dataclass(frozen=True, slots=True, eq=False)
class Mount:
    """What is served at one path: a handler and its settings; see `HttpMounts.mount`."""

    handler: HttpHandler
    title: str
    registration: "Registration"
    methods: tuple[str, ...] = READ_ONLY
    body_bytes: int = 0
    refused: Callable[[Refusal], None] = lambda _: None


class Registration:
    """A component's use of a listener; implements `HttpMounts`."""

    def __init__(self, listener: "Listener") -> None:
        self.listener = listener
        self.port = listener.port
        self.ended = False

    def mount(
        self,
        path: str,
        handler: HttpHandler,
        *,
        title: str,
        methods: Sequence[str] = READ_ONLY,
        body_bytes: int = 0,
        refused: Callable[[Refusal], None] = lambda _: None,
    ) -> None:
        """Serve a path until this registration ends. A path of an ended registration is replaced.

        Raises:
            PermanentError: the path is invalid, or another component serves it.
        """
        if self.ended:
            raise RuntimeError(f"cannot serve {path}: the listener was released")
        mounts, where = self.listener.mounts, f"{self.listener.address}{path}"
        if not path.startswith("/") or any(c in path for c in "?#") or not path.isprintable():
            raise PermanentError(f"serve {where}: a path must begin with / and contain no ? or #")
        if path in self.listener.builtin:
            raise PermanentError(f"serve {where}: podgpu uses this path; choose another path")
        known = mounts.get(path)
        if known is not None and not known.registration.ended:
            raise PermanentError(
                f"serve {where}: another component uses this path ({known.title}); choose another"
            )
        mounts[path] = Mount(handler, title, self, tuple(methods), body_bytes, refused)


class Listener:
    """Listens on an address and responds to requests, between `start` and `close`.

    Attributes:
        mounts: handlers of components, by path.
        builtin: handlers that every listener serves, by path.
    """

    _server: Server
    _acceptor: Acceptor

    def __init__(self, context: ServerContext, address: ListenAddress) -> None:
        self.address = address
        self.port = address.port
        self.registrations: set[Registration] = set()
        self._context = context
        self.mounts: dict[str, Mount] = {}
        # These need no password: a kubelet's probe can't send one.
        self._health_pages: dict[str, HttpHandler] = {
            "/healthz": check_page(context.health),
            "/health": check_page(context.health),
            "/readyz": check_page(context.ready),
        }
        pages = {path: handler for path, (handler, _) in context.pages.items()}
        builtin, own = {"/": self._index, **self._health_pages, **pages}, Registration(self)
        self.builtin = {path: Mount(handler, "", own) for path, handler in builtin.items()}

    async def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: podgpu cannot listen on the address.
        """
        context = self._context
        listening = await bind(self.address)
        # Accepted connections inherit these.
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            listening.setsockopt(socket.SOL_SOCKET, buffer, context.limits.socket_bytes)
        self.port = listening.getsockname()[1]
        self._server = Server(
            self.serve, context.limits, context.accounting, lambda: context.access
        )
        self._acceptor = Acceptor(listening, self._server.connect, context.accounting)
        tls = context.access is not None and context.access.rules.context is not None
        served = ListenAddress(self.address.host or "localhost", self.port)
        _LOG.info("serving http%s://%s/", "s" if tls else "", served)

    def close(self) -> None:
        """Release the address immediately. Responses in progress get `Limits.close_seconds`."""
        self._acceptor.close()
        self._server.close(self._context.limits.close_seconds)

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended. Call this after `close`."""
        await self._server.empty.wait()

    def register(self) -> Registration:
        """Return a new use of this listener."""
        registration = Registration(self)
        self.registrations.add(registration)
        return registration

    def remove_ended(self) -> None:
        """Stop serving the paths of ended registrations."""
        self.mounts = {
            path: mount for path, mount in self.mounts.items() if not mount.registration.ended
        }

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send the response to a request. Called by aiohttp."""
        context, handler = self._context, request.protocol
        assert isinstance(handler, Handler)  # noqa: S101 - the server makes no other ones
        client, accounting, access = handler.client, context.accounting, context.access
        handler.body = request.content
        accounting.shrink_head(client, request.content.total_bytes)
        try:
            accounting.set_state(client, "queued")
            answer = await self._answer_in_turn(request, access, client)
            accounting.set_state(client, "sending")
            rules = access.rules if access is not None else None
            # A connection that was made under other rules ends with this response.
            last = handler.context is not (rules.context if rules else None)
            with accounting.sending(client, (answer.body, answer.tail)):
                headers = {**COMMON_HEADERS, **answer.headers, **(rules.headers if rules else {})}
                response = web.StreamResponse(status=answer.status, headers=headers)
                response.headers["Content-Type"] = answer.content_type
                if last or client.ended or client.reserved:
                    response.force_close()
                await self._send(request, answer, response)
                return response
        finally:
            accounting.set_state(client, "idle")
            accounting.shrink_head(client)

    async def _send(
        self, request: web.BaseRequest, answer: HttpResponse, response: web.StreamResponse
    ) -> None:
        """Write a response piece by piece. Write each piece when the previous one was accepted.

        So a client that does not read holds one piece in memory, and its further requests wait in
        the kernel. Abort the connection after a timeout.
        """
        limits = self._context.limits
        response.content_length = len(answer.body) + len(answer.tail)
        try:
            async with asyncio.timeout(limits.send_seconds):
                await response.prepare(request)
                if request.method != "HEAD":
                    for part in (memoryview(answer.body), memoryview(answer.tail)):
                        for start in range(0, len(part), limits.write_bytes):
                            await response.write(part[start : start + limits.write_bytes])
                            await request.writer.drain()
                await response.write_eof()
                await request.writer.drain()
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()

    async def _answer_in_turn(
        self, request: web.BaseRequest, access: "AccessChecker | None", client: ClientConnection
    ) -> HttpResponse:
        context, probe = self._context, request.path in self._health_pages
        if client.reserved and not probe and not await self._wait_for_room(client):
            return _FULL
        # Released in the next round of the event loop: a turn is for starting an answer only.
        turns = context.probe_turns if probe else context.turns
        await turns.acquire(client.source)
        asyncio.get_running_loop().call_soon(turns.release)
        context.accounting.set_state(client, "working")
        return await self._answer(request, access, client)

    async def _wait_for_room(self, client: ClientConnection) -> bool:
        """Try for a second to move a connection out of the reserve; return whether it was moved."""
        for _ in range(_ROOM_TRIES):
            if self._context.accounting.promote(client):
                return True
            await asyncio.sleep(_ROOM_INTERVAL)
        return False

    async def _answer(
        self, request: web.BaseRequest, access: "AccessChecker | None", client: ClientConnection
    ) -> HttpResponse:
        path = request.path
        deadline = asyncio.timeout(self._context.limits.handler_seconds)
        try:
            async with deadline:
                http_request = _request_of(request, client.source)
                if path not in self._health_pages:
                    refused = await self._refusal(http_request, request, access)
                    if refused is not None:
                        return refused
                return await self._route(http_request, request, client)
        except BodyRefusedError as error:
            return error.answer
        except Exception:  # noqa: BLE001 - a failing handler must not affect other requests
            if deadline.expired():
                _LOG.warning(
                    "%s%s: no response within %g s; podgpu sent status 503",
                    self.address,
                    _on_one_line(path),
                    self._context.limits.handler_seconds,
                )
                return plain(503, f"{path} took too long")
            _LOG.exception("%s%s: the handler failed", self.address, _on_one_line(path))
            return plain(500, f"{path} failed; see podgpu's log")

    async def _refusal(
        self, http_request: HttpRequest, request: web.BaseRequest, access: "AccessChecker | None"
    ) -> HttpResponse | None:
        """Return the response that refuses a request; None if it is allowed."""
        if access is not None:
            await access.current()
        # A web page of another server does not have the password or the certificate.
        if access is None or not access.rules.identified:
            # The host of a target such as `http://name/metrics`, and all `Host` headers. Without
            # any, `host` is the address that the client has connected to.
            hosts = (request.host, *request.headers.getall("Host", ()))
            reason = self._context.hosts.refusal(hosts, self.address.host)
            if reason is not None:
                return plain(HTTPStatus.MISDIRECTED_REQUEST, reason)
        if access is None:
            return None
        return await access.refusal(http_request.headers, http_request.source)

    async def _route(
        self, http_request: HttpRequest, request: web.BaseRequest, client: ClientConnection
    ) -> HttpResponse:
        mount = self.mounts.get(http_request.path) or self.builtin.get(http_request.path)
        if mount is None:
            return plain(404, "not found; / lists all pages")
        methods = mount.methods
        if http_request.method not in methods:
            verb = "is" if len(methods) == 1 else "are"
            text = f"only {' and '.join(methods)} {verb} allowed"
            return plain(405, text, {"Allow": ", ".join(methods)})
        if body := await self._body(mount, request, client):
            http_request = replace(http_request, body=body)
            del body
        return await mount.handler(http_request)

    async def _body(
        self, mount: Mount, request: web.BaseRequest, client: ClientConnection
    ) -> bytes:
        if not mount.body_bytes:
            return b""
        accounting = self._context.accounting
        accounting.set_state(client, "reading")
        try:
            return await read_body(request, mount.body_bytes, accounting, client)
        except BaseException as error:
            mount.refused(error.kind if isinstance(error, BodyRefusedError) else "unfinished")
            raise
        finally:
            accounting.set_state(client, "working")

    async def _index(self, request: HttpRequest) -> HttpResponse:
        context = self._context
        mounts = [(path, mount.title) for path, mount in sorted(self.mounts.items())]
        mounts += [(path, title) for path, (_, title) in context.pages.items()]
        if context.front_page is not None:
            return await context.front_page(request, links(mounts))
        return index(context.node, context.version, links(mounts))


def _request_of(request: web.BaseRequest, source: str) -> HttpRequest:
    """Return a request in the form that handlers get. Its body is not read yet."""
    headers = {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}
    occurrences = Counter(name for name, _ in request.query.items())
    return HttpRequest(
        request.method,
        request.path,
        dict(request.query),
        headers,
        repeated=frozenset(name for name, count in occurrences.items() if count > 1),
        source=source,
    )


def _on_one_line(path: str) -> str:
    """Return a path for the log, quoted if it is long or could forge log lines by line breaks."""
    return path if path.isprintable() and len(path) <= _MAX_LOGGED else f" {shown(path)}"
