"""One address: routes requests to what is mounted."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from config.text import shown
from config.types import ListenAddress
from pipeline.contracts import READ_ONLY, HttpHandler, HttpRequest, HttpResponse, Refusal
from pipeline.errors import PermanentError
from pipeline.hosts import Hosts
from pipeline.http.bodies import Bodies, BodyRefusedError
from pipeline.http.connections import Server
from pipeline.http.limits import Limits
from pipeline.http.wire import hosts_of, request_of, send
from pipeline.pages import Check, Front, Pages, checked, index, links, plain
from pipeline.sockets import BACKLOG, bind

if TYPE_CHECKING:
    from pipeline.web import Access

_LOG = logging.getLogger("podgpu.http")
_NONE: Mapping[str, str] = {}
_LONGEST_TOLD = 60


class House(Protocol):
    """What all listeners have in common; see `Listeners`."""

    node: str
    version: str
    health: Check
    ready: Check
    pages: Pages
    front: Front | None
    limits: Limits
    access: "Access | None"
    hosts: Hosts


@dataclass(frozen=True, slots=True, eq=False)
class Mount:
    """What is served at a path."""

    handler: HttpHandler
    title: str
    lease: "Lease"
    methods: tuple[str, ...] = READ_ONLY
    body_bytes: int = 0
    refused: Callable[[Refusal], None] = lambda _: None


class Lease:
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

    def __init__(self, house: House, address: ListenAddress) -> None:
        self.address = address
        self.port = address.port
        self.leases: set[Lease] = set()
        self._house = house
        self._mounts: dict[str, Mount] = {}
        self._bodies = Bodies(house.limits)
        self._server: Server | None = None
        self._sockets: asyncio.Server | None = None
        # A kubelet's probe knows no password.
        self._health_pages: dict[str, HttpHandler] = {
            "/healthz": self._health,
            "/health": self._health,
            "/readyz": self._readiness,
        }
        pages = {path: handler for path, (handler, _) in house.pages.items()}
        self._own = {"/": self._index, **self._health_pages, **pages}

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address can't be listened on.
        """
        house = self._house
        listening = await bind(self.address)
        self._server = Server(self.serve, house.limits, lambda: house.access)
        self.port = listening.getsockname()[1]
        self._sockets = await asyncio.get_running_loop().create_server(
            self._server.protocol, sock=listening, backlog=BACKLOG
        )
        secure = house.access is not None and house.access.rules.context is not None
        host = self.address.host or "localhost"
        host = f"[{host}]" if ":" in host else host
        _LOG.info("serving http%s://%s:%d/", "s" if secure else "", host, self.port)

    def close(self) -> None:
        """Give the address free at once; answers under way have a little longer."""
        if self._sockets is not None and self._server is not None:
            self._sockets.close()
            self._server.close(self._house.limits.close_seconds)

    async def gone(self) -> None:
        """Wait, after `close`, until the last connection has ended."""
        if self._server is not None:
            await self._server.gone()

    def mount(self, path: str, mount: Mount) -> None:
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
        server, access = self._server, self._house.access
        assert server is not None  # noqa: S101 - there are no requests before the start
        server.busy(request.protocol)
        try:
            answer = await self._answer(request, access)
            rules = access.rules if access is not None else None
            # A connection that was made on other terms ends with this answer.
            last = server.context(request.protocol) is not (rules.context if rules else None)
            with self._counted(request, answer):
                return await send(
                    request,
                    answer,
                    headers=rules.headers if rules else _NONE,
                    last=last,
                    seconds=self._house.limits.send_seconds,
                )
        finally:
            server.idle(request.protocol)

    async def _answer(self, request: web.BaseRequest, access: "Access | None") -> HttpResponse:
        path = request.path
        deadline = asyncio.timeout(self._house.limits.handler_seconds)
        try:
            async with deadline:
                asked = request_of(request)
                if path not in self._health_pages:
                    refused = await self._refusal(asked, request, access)
                    if refused is not None:
                        return refused
                return await self._routed(asked, request)
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
            wrong = self._house.hosts.refusal(hosts_of(request), self.address.host)
            if wrong is not None:
                return plain(HTTPStatus.MISDIRECTED_REQUEST, wrong)
        if access is None:
            return None
        return await access.refusal(asked.headers, request.remote or "")

    async def _routed(self, asked: HttpRequest, request: web.BaseRequest) -> HttpResponse:
        mount = self._mounts.get(asked.path)
        handler = mount.handler if mount is not None else self._own.get(asked.path)
        if handler is None:
            return plain(404, "nothing is here; / lists what there is")
        methods = mount.methods if mount is not None else READ_ONLY
        if asked.method not in methods:
            are = "is" if len(methods) == 1 else "are"
            told = f"only {' and '.join(methods)} {are} served"
            return plain(405, told, {"Allow": ", ".join(methods)})
        if mount is not None and (body := await self._body(mount, request)):
            asked = replace(asked, body=body)
            del body
        return await handler(asked)

    async def _body(self, mount: Mount, request: web.BaseRequest) -> bytes:
        if not mount.body_bytes:
            return b""
        assert self._server is not None  # noqa: S101 - see `serve`
        self._server.receiving(request.protocol)
        kind: Refusal = "unfinished"
        try:
            body = await self._bodies.read(request, mount.body_bytes)
        except BaseException as error:
            if isinstance(error, BodyRefusedError):
                kind = error.kind
            mount.refused(kind)
            raise
        finally:
            self._server.busy(request.protocol)
        return body

    def _counted(
        self, request: web.BaseRequest, answer: HttpResponse
    ) -> AbstractContextManager[None]:
        """Count what was made for one client alone; a page that many get is counted by nobody."""
        mount = self._mounts.get(request.path)
        if mount is None or not mount.body_bytes or request.transport is None:
            return nullcontext()
        return self._bodies.sending(len(answer.body) + len(answer.tail), request.transport.abort)

    async def _index(self, request: HttpRequest) -> HttpResponse:
        house = self._house
        mounts = [(path, mount.title) for path, mount in sorted(self._mounts.items())]
        mounts += [(path, title) for path, (_, title) in house.pages.items()]
        if house.front is not None:
            return await house.front(request, links(mounts))
        return index(house.node, house.version, links(mounts))

    async def _health(self, _: HttpRequest) -> HttpResponse:
        return checked(self._house.health)

    async def _readiness(self, _: HttpRequest) -> HttpResponse:
        return checked(self._house.ready)


def _on_one_line(path: str) -> str:
    """Return a path for the log, where it must not look like lines of others."""
    return path if path.isprintable() and len(path) <= _LONGEST_TOLD else f" {shown(path)}"
