"""Serves the document and the page; made when somebody asks, once a second at most."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Final

import msgspec

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.builtin_pages import Links, Pages
from pipeline.model import NS, Instant
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.page import HEADERS, body, footer, refresh
from pipeline.status_page.status_document import StatusDocument

PATH: Final = "/status"

GOOD_FOR_NS: Final = NS
"""How long what was made is shown again: many viewers cost what one does."""

_NO_STORE: Final = {"Cache-Control": "no-store"}


class StatusPages:
    """Answers with how the node stands.

    Args:
        now: returns the present moment.
        known: returns what is known of the node now.
    """

    def __init__(self, now: Callable[[], Instant], known: Callable[[], StatusInput]) -> None:
        self._now = now
        self._known = known
        self._last: tuple[Instant, _Moment] | None = None

    @property
    def pages(self) -> Pages:
        """Handlers and titles, by path."""
        return MappingProxyType({PATH: (self.show, "the same as this page, as JSON")})

    async def show(self, _: HttpRequest) -> HttpResponse:
        """Answer with the document."""
        made = await self._moment().made(None)
        return HttpResponse(made, "application/json", headers=_NO_STORE)

    async def front(self, request: HttpRequest, links: Links) -> HttpResponse:
        """Answer with the page.

        Args:
            request: `?refresh=SECONDS` says how often it is loaded anew, 0 never.
            links: paths and titles of what is served besides.
        """
        made = await self._moment().made(links)
        seconds = refresh(request.query.get("refresh", ""))
        again = {"Refresh": str(seconds)} if seconds else {}
        return HttpResponse(
            made + footer(seconds).encode(),
            "text/html; charset=utf-8",
            headers={**HEADERS, **_NO_STORE, **again},
        )

    def _moment(self) -> "_Moment":
        now, last = self._now(), self._last
        if last is None or (last[1].finished and now.mono_ns - last[0].mono_ns >= GOOD_FOR_NS):
            known = self._known()
            # A view: what is made of it in a thread must not change meanwhile.
            last = self._last = (now, _Moment(replace(known, troubles=dict(known.troubles))))
        return last[1]


class _Moment:
    """What was known at one moment, and what is made of it: of each kind once.

    Attributes:
        finished: nothing is being made of it. Else the next moment waits, and threads don't pile up
            where making one takes longer than it is good for.
    """

    def __init__(self, known: StatusInput) -> None:
        self._told: StatusInput | StatusDocument = known
        self._lock = Lock()
        # As many as there are listeners, and the document.
        self._made: dict[Links | None, asyncio.Future[bytes]] = {}

    @property
    def finished(self) -> bool:
        return all(future.done() for future in self._made.values())

    async def made(self, links: Links | None) -> bytes:
        """Make it in a thread: of a large node it takes a while, in which others are served."""
        future = self._made.get(links)
        if future is None:
            # Of its own, which ends with the call: the others may wait for what hangs.
            with DaemonExecutor("podgpu-status") as thread:
                loop = asyncio.get_running_loop()
                future = self._made[links] = loop.run_in_executor(thread, self._make, links)
        # Whoever goes away, others wait for the same.
        return await asyncio.shield(future)

    def _make(self, links: Links | None) -> bytes:
        """Return the page but for its foot; without `links` the document. For any thread."""
        with self._lock:
            if isinstance(self._told, StatusInput):
                # In its place: the snapshot would else live until somebody asks again.
                self._told = status_of(self._told)
            status = self._told
        if links is None:
            return msgspec.json.encode(status) + b"\n"
        return body(status, links).encode("utf-8", "replace")
