"""One address: routes requests to what is mounted."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from config.message_text import shown
from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import READ_ONLY, HttpHandler, HttpRequest, HttpResponse, Refusal
from pipeline.host.listen_sockets import bind
from pipeline.http.acceptor import Acceptor
from pipeline.http.aiohttp_adapter import hosts_of, request_of, send
from pipeline.http.allowed_hosts import Hosts
from pipeline.http.body_limit import BodyRefusedError, read_body
from pipeline.http.builtin_pages import Check, Front, Pages, checked, index, links, plain
from pipeline.http.client_shares import ClientAccounting, ClientConnection
from pipeline.http.connections import Handler, Server
from pipeline.http.fair_queue import FairQueue
from pipeline.http.limits import Limits

if TYPE_CHECKING:
    from pipeline.http.access import Access

_LOG = logging.getLogger("podgpu.http")
_NONE: Mapping[str, str] = {}
_MAX_LOGGED = 60
_TRIES = 18
_TRY_EVERY = 0.05
_FULL = plain(503, "too many connections")


class ServerContext(Protocol):
    """What all listeners have in common; see `Listeners`."""

    node: str
    version: str
    health: Check
    ready: Check
    pages: Pages
    front_page: Front | None
    limits: Limits
    accounting: ClientAccounting
    turns: FairQueue
    probe_turns: FairQueue
    access: "Access | None"
    hosts: Hosts


@dataclass(frozen=True, slots=True, eq=False)
class Mount:
    """What is served at a path."""

    handler: HttpHandler
    title: str
    registration: "Registration"
    methods: tuple[str, ...] = READ_ONLY
    body_bytes: int = 0
    refused: Callable[[Refusal], None] = lambda _: None


class Registration:
    """Implements `HttpMounts`: one component's part of a listener."""

    def __init__(self, listener: "Listener") -> None:
        self.listener = listener
        self.ended = False

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self.listener.port

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
        """Serve a path until the lease ends.

        Raises:
            PermanentError: the path is no path, or somebody else serves it.
        """
        if self.ended:
            raise RuntimeError(f"{path} is mounted on a listener that was given back")
        made = Mount(handler, title, self, tuple(methods), body_bytes, refused)
        self.listener.mount(path, made)


class Listener:
    """Listens on an address, and answers."""

    def __init__(self, context: ServerContext, address: ListenAddress) -> None:
        self.address = address
        self.port = address.port
        self.registrations: set[Registration] = set()
        self._context = context
        self._mounts: dict[str, Mount] = {}
        self._server: Server | None = None
        self._acceptor: Acceptor | None = None
        # A kubelet's probe knows no password.
        self._health_pages: dict[str, HttpHandler] = {
            "/healthz": self._health,
            "/health": self._health,
            "/readyz": self._readiness,
        }
        pages = {path: handler for path, (handler, _) in context.pages.items()}
        self._own = {"/": self._index, **self._health_pages, **pages}

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address can't be listened on.
        """
        house = self._context
        listening = await bind(self.address)
        # Connections that are accepted have them, too.
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            listening.setsockopt(socket.SOL_SOCKET, buffer, house.limits.socket_bytes)
        self.port = listening.getsockname()[1]
        self._server = Server(self.serve, house.limits, house.accounting, lambda: house.access)
        self._acceptor = Acceptor(listening, self._server.protocol, house.accounting)
        secure = house.access is not None and house.access.rules.context is not None
        host = self.address.host or "localhost"
        host = f"[{host}]" if ":" in host else host
        _LOG.info("serving http%s://%s:%d/", "s" if secure else "", host, self.port)

    def close(self) -> None:
        """Give the address free at once; answers under way have a little longer."""
        if self._acceptor is not None and self._server is not None:
            self._acceptor.close()
            self._server.close(self._context.limits.close_seconds)

    async def wait_closed(self) -> None:
        """Wait, after `close`, until the last connection has ended."""
        if self._server is not None:
            await self._server.wait_closed()

    def mount(self, path: str, mount: Mount) -> None:
        """Serve a path; what is left of an ended lease gives way."""
        where = f"{self.address}{path}"
        if not path.startswith("/") or any(c in path for c in "?#") or not path.isprintable():
            raise PermanentError(f"serve {where}: a path begins with / and has no ? and no #")
        if path in self._own:
            raise PermanentError(f"serve {where}: podgpu's own page is there, choose another path")
        known = self._mounts.get(path)
        if known is not None and not known.registration.ended:
            raise PermanentError(
                f"serve {where}: another component is there ({known.title}), choose another path"
            )
        self._mounts[path] = mount

    def remove_ended(self) -> None:
        """Drop what ended leases left behind."""
        self._mounts = {
            path: mount for path, mount in self._mounts.items() if not mount.registration.ended
        }

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; called by aiohttp."""
        house, handler = self._context, request.protocol
        assert isinstance(handler, Handler)  # noqa: S101 - the server makes no others
        guest, shares, access = handler.client, house.accounting, house.access
        handler.body = request.content
        shares.shrink_head(guest, request.content.total_bytes)
        try:
            shares.set_state(guest, "queued")
            answer = await self._in_turn(request, access, guest)
            shares.set_state(guest, "sending")
            rules = access.rules if access is not None else None
            # A connection that was made on other terms ends with this answer.
            last = handler.context is not (rules.context if rules else None)
            with shares.sending(guest, (answer.body, answer.tail)):
                return await send(
                    request,
                    answer,
                    headers=rules.headers if rules else _NONE,
                    last=last or guest.ended or guest.reserved,
                    seconds=house.limits.send_seconds,
                    piece=house.limits.write_bytes,
                )
        finally:
            shares.set_state(guest, "idle")
            shares.shrink_head(guest)

    async def _in_turn(
        self, request: web.BaseRequest, access: "Access | None", guest: ClientConnection
    ) -> HttpResponse:
        house, probe = self._context, request.path in self._health_pages
        if guest.reserved and not probe and not await self._wait_for_room(guest):
            return _FULL
        # Given back in the next round of the event loop: a turn is to begin, not to end.
        turns = house.probe_turns if probe else house.turns
        await turns.acquire(guest.source)
        asyncio.get_running_loop().call_soon(turns.release)
        house.accounting.set_state(guest, "working")
        return await self._answer(request, access, guest)

    async def _wait_for_room(self, guest: ClientConnection) -> bool:
        """Wait a moment for a connection of the reserve to be one like others."""
        for _ in range(_TRIES):
            if self._context.accounting.promote(guest):
                return True
            await asyncio.sleep(_TRY_EVERY)
        return False

    async def _answer(
        self, request: web.BaseRequest, access: "Access | None", guest: ClientConnection
    ) -> HttpResponse:
        path = request.path
        deadline = asyncio.timeout(self._context.limits.handler_seconds)
        try:
            async with deadline:
                asked = request_of(request, guest.source)
                if path not in self._health_pages:
                    refused = await self._refusal(asked, request, access)
                    if refused is not None:
                        return refused
                return await self._routed(asked, request, guest)
        except BodyRefusedError as error:
            return error.answer
        except Exception:  # noqa: BLE001 - whatever a handler does, others are served
            if deadline.expired():
                _LOG.warning("%s%s: no answer in time", self.address, _on_one_line(path))
                return plain(503, f"{path} took too long")
            _LOG.exception("%s%s: the answer failed", self.address, _on_one_line(path))
            return plain(500, f"{path} failed; podgpu's log says why")

    async def _refusal(
        self, asked: HttpRequest, request: web.BaseRequest, access: "Access | None"
    ) -> HttpResponse | None:
        """Return why a request isn't answered; None if it is."""
        if access is not None:
            await access.current()
        # No page of somebody else's has the password or the certificate.
        if access is None or not access.rules.identified:
            wrong = self._context.hosts.refusal(hosts_of(request), self.address.host)
            if wrong is not None:
                return plain(HTTPStatus.MISDIRECTED_REQUEST, wrong)
        if access is None:
            return None
        return await access.refusal(asked.headers, asked.source)

    async def _routed(
        self, asked: HttpRequest, request: web.BaseRequest, guest: ClientConnection
    ) -> HttpResponse:
        mount = self._mounts.get(asked.path)
        handler = mount.handler if mount is not None else self._own.get(asked.path)
        if handler is None:
            return plain(404, "nothing is here; / lists what there is")
        methods = mount.methods if mount is not None else READ_ONLY
        if asked.method not in methods:
            are = "is" if len(methods) == 1 else "are"
            told = f"only {' and '.join(methods)} {are} served"
            return plain(405, told, {"Allow": ", ".join(methods)})
        if mount is not None and (body := await self._body(mount, request, guest)):
            asked = replace(asked, body=body)
            del body
        return await handler(asked)

    async def _body(self, mount: Mount, request: web.BaseRequest, guest: ClientConnection) -> bytes:
        if not mount.body_bytes:
            return b""
        shares = self._context.accounting
        shares.set_state(guest, "reading")
        kind: Refusal = "unfinished"
        try:
            body = await read_body(request, mount.body_bytes, shares, guest)
        except BaseException as error:
            if isinstance(error, BodyRefusedError):
                kind = error.kind
            mount.refused(kind)
            raise
        finally:
            shares.set_state(guest, "working")
        return body

    async def _index(self, request: HttpRequest) -> HttpResponse:
        house = self._context
        mounts = [(path, mount.title) for path, mount in sorted(self._mounts.items())]
        mounts += [(path, title) for path, (_, title) in house.pages.items()]
        if house.front_page is not None:
            return await house.front_page(request, links(mounts))
        return index(house.node, house.version, links(mounts))

    async def _health(self, _: HttpRequest) -> HttpResponse:
        return checked(self._context.health)

    async def _readiness(self, _: HttpRequest) -> HttpResponse:
        return checked(self._context.ready)


def _on_one_line(path: str) -> str:
    """Return a path for the log, where it must not look like lines of others."""
    return path if path.isprintable() and len(path) <= _MAX_LOGGED else f" {shown(path)}"
