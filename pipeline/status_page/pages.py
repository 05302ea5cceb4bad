"""Serves the document and the page; made when somebody asks, once a second at most."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec

from pipeline.contracts import HttpRequest, HttpResponse
from pipeline.model import NS, Instant
from pipeline.pages import Links, Pages
from pipeline.status_page.document import StatusDocument
from pipeline.status_page.html.page import HEADERS, body, footer, refresh
from pipeline.status_page.known import Known
from pipeline.status_page.losses import Losses
from pipeline.status_page.making import status_of

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

    def __init__(self, now: Callable[[], Instant], known: Callable[[], Known]) -> None:
        self._now = now
        self._known = known
        self._losses = Losses()
        self._made: tuple[Instant, StatusDocument] | None = None
        self._json: bytes | None = None
        self._html: dict[Links, bytes] = {}

    @property
    def pages(self) -> Pages:
        """Handlers and titles, by path."""
        return MappingProxyType({PATH: (self.show, "the same as this page, as JSON")})

    async def show(self, _: HttpRequest) -> HttpResponse:
        """Answer with the document."""
        status = self._status()
        if self._json is None:
            self._json = msgspec.json.encode(status) + b"\n"
        return HttpResponse(self._json, "application/json", headers=_NO_STORE)

    def front(self, request: HttpRequest, links: Links) -> HttpResponse:
        """Answer with the page.

        Args:
            request: `?refresh=SECONDS` says how often it is loaded anew, 0 never.
            links: paths and titles of what is served besides.
        """
        status = self._status()
        made = self._html.get(links)
        if made is None:
            made = self._html[links] = body(status, links).encode("utf-8", "replace")
        seconds = refresh(request.query.get("refresh", ""))
        again = {"Refresh": str(seconds)} if seconds else {}
        return HttpResponse(
            made + footer(seconds).encode(),
            "text/html; charset=utf-8",
            headers={**HEADERS, **_NO_STORE, **again},
        )

    def _status(self) -> StatusDocument:
        now = self._now()
        if self._made is not None and now.mono_ns - self._made[0].mono_ns < GOOD_FOR_NS:
            return self._made[1]
        known = self._known()
        status = status_of(replace(known, losses=self._losses.seen(known)))
        self._made, self._json = (now, status), None
        # As many as there are listeners.
        self._html.clear()
        return status
