"""Serve the status document and the page. Each is rendered on request, at most once per second."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final

import msgspec

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.builtin_pages import Links, Pages
from pipeline.model import NS, Instant, Snapshot
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.page import body, footer, refresh
from pipeline.status_page.html.style import HEADERS
from pipeline.status_page.recent_past import RecentPast
from pipeline.status_page.status_document import StatusDocument

PATH: Final = "/status"

GOOD_FOR_NS: Final = NS
"""Nanoseconds for which a rendered page is reused, so that many viewers cost as little as one."""

_NO_STORE: Final = {"Cache-Control": "no-store"}


class StatusPages:
    """HTTP handlers that serve the status of the node.

    Args:
        now: function that returns the current time.
        known: function that returns the current state of the daemon.
    """

    def __init__(self, now: Callable[[], Instant], known: Callable[[], StatusInput]) -> None:
        self._now = now
        self._known = known
        self._last: tuple[Instant, _StateAtOneTime] | None = None
        self._past = RecentPast()

    def remember(self, snapshot: Snapshot | None) -> None:
        """Remember what later pages show of a snapshot: the last hour, and when faults began."""
        self._past.add(snapshot)

    @property
    def pages(self) -> Pages:
        """Handler and title of each page, by path. The page at `/` is not included."""
        return {PATH: (self.show, "the same as this page, as JSON")}

    async def show(self, _: HttpRequest) -> HttpResponse:
        """Serve the document as JSON."""
        content = await self._current().render(None)
        return HttpResponse(content, "application/json", headers=_NO_STORE)

    async def front(self, request: HttpRequest, links: Links) -> HttpResponse:
        """Serve the page as HTML.

        Args:
            request: the request. `?refresh=SECONDS` sets the reload interval; 0 means never.
                `?debug=1` shows whole UUIDs, sources and evidence.
            links: paths and titles of other pages.
        """
        debug = request.query.get("debug", "") == "1"
        content = await self._current().render(links, debug=debug)
        seconds = refresh(request.query.get("refresh", ""))
        again = {"Refresh": str(seconds)} if seconds else {}
        return HttpResponse(
            content + footer(seconds, debug=debug).encode(),
            "text/html; charset=utf-8",
            headers={**HEADERS, **_NO_STORE, **again},
        )

    def _current(self) -> "_StateAtOneTime":
        now, last = self._now(), self._last
        if last is None or (last[1].finished and now.mono_ns - last[0].mono_ns >= GOOD_FOR_NS):
            known = self._known()
            self.remember(known.snapshot)
            # A copy, because a thread renders it while the daemon changes the original.
            last = self._last = (
                now,
                _StateAtOneTime(
                    replace(known, troubles=dict(known.troubles), past=self._past.known())
                ),
            )
        return last[1]


class _StateAtOneTime:
    """The state of the daemon at one time. Each format is rendered from it once.

    Attributes:
        finished: whether nothing is being rendered. Only then is the next state used, so that
            threads do not accumulate if rendering takes longer than `GOOD_FOR_NS`.
    """

    def __init__(self, known: StatusInput) -> None:
        self._state: StatusInput | StatusDocument = known
        self._lock = Lock()
        # One for each listener's links without and with `debug`, and None for the document.
        self._results: dict[tuple[Links | None, bool], asyncio.Future[bytes]] = {}

    @property
    def finished(self) -> bool:
        return all(future.done() for future in self._results.values())

    async def render(self, links: Links | None, *, debug: bool = False) -> bytes:
        """Render the page with links, or without `links` the document, in a separate thread."""
        key = links, debug
        future = self._results.get(key)
        if future is None:
            # A thread for this call only: with a shared thread, others would wait if it hangs.
            with DaemonExecutor("podgpu-status") as thread:
                loop = asyncio.get_running_loop()
                future = self._results[key] = loop.run_in_executor(thread, self._make, links, debug)
        # Other requests wait for the same result, so the end of one request must not cancel it.
        return await asyncio.shield(future)

    def _make(self, links: Links | None, debug: bool) -> bytes:
        """Return the page without its footer; without `links`, the document. Thread-safe."""
        with self._lock:
            if isinstance(self._state, StatusInput):
                # Replaces the input: otherwise the snapshot would stay in memory.
                self._state = status_of(self._state)
            status = self._state
        if links is None:
            return msgspec.json.encode(status) + b"\n"
        return body(status, links, debug=debug).encode("utf-8", "replace")
