"""The sink `prometheus`: serves the newest snapshot over HTTP."""

import zlib
from contextlib import AsyncExitStack
from typing import Final, Self

from pipeline.component.contracts import HttpRequest, HttpResponse, SinkContext, SinkInbox
from pipeline.exposition.renderer import PageRenderer
from pipeline.exposition.text_format import Format, tail
from pipeline.model import Instant, Snapshot
from sinks.prometheus.content_negotiation import choose, takes_gzip
from sinks.prometheus.options import Options

_SHARED_SECONDS: Final = 0.1
"""Seconds for which a complete response is reused for other scrapes."""

_LEVEL = 1
_GZIP_WBITS = 31
"""`wbits` for the gzip format with the largest window."""


class Page:
    """The part of a page that is the same for all scrapes of one snapshot in one format.

    Compression is most of the cost of a scrape, so the body is compressed only once. A copy of the
    compressor continues with the tail, which is new for each scrape: a second gzip member would be
    ignored by clients that read only the first one.

    Args:
        body: the page without its tail.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._compressor: zlib._Compress | None = None
        self._compressed = b""

    def gzipped(self, end: bytes) -> tuple[bytes, bytes]:
        """Return the compressed body and the compressed tail; together they are one gzip member."""
        if self._compressor is None:
            compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
            self._compressed = compressor.compress(self.body)
            self._compressor = compressor
        compressor = self._compressor.copy()
        return self._compressed, compressor.compress(end) + compressor.flush()


class PrometheusSink:
    """Serves metrics of the newest snapshot over HTTP.

    A scrape does not read devices and does not wait. The page of a snapshot is rendered at the
    first scrape in each format, and shared by all scrapers. A complete response is also shared for
    a short time, so that a client without pauses costs no more than ten scrapes per second.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._renderer = PageRenderer(options, ctx.plan, ctx.node, ctx.meter)
        self._pages: dict[Format, Page] = {}
        self._responses: dict[tuple[Format, bool], tuple[Instant, tuple[bytes, bytes]]] = {}
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._show(self._ctx.latest())
        async with AsyncExitStack() as stack:
            mounts = await stack.enter_async_context(self._ctx.http(self._options.listen))
            mounts.mount(self._options.path, self.serve, title="metrics for Prometheus")
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit_stack.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Use the newest snapshot until the inbox ends."""
        async for snapshot in inbox:
            self._show(snapshot)

    def _show(self, snapshot: Snapshot | None) -> None:
        self._renderer.show(snapshot)
        self._pages, self._responses = {}, {}

    async def serve(self, request: HttpRequest) -> HttpResponse:
        """Respond to a scrape."""
        form, content_type = choose(request.headers.get("accept"))
        headers = {"Vary": "Accept, Accept-Encoding"}
        gzip = takes_gzip(request.headers.get("accept-encoding"))
        if gzip:
            headers["Content-Encoding"] = "gzip"
        body, end = self._response(form, gzip=gzip)
        return HttpResponse(body, content_type, headers=headers, tail=end)

    def _response(self, form: Format, *, gzip: bool) -> tuple[bytes, bytes]:
        now = self._ctx.clock.now()
        cached = self._responses.get((form, gzip))
        if cached is not None and cached[0].seconds_until(now) < _SHARED_SECONDS:
            return cached[1]
        if form not in self._pages:
            self._pages[form] = Page(self._renderer.body(form))
        page, end = self._pages[form], tail(form, self._ctx.telemetry())
        response = page.gzipped(end) if gzip else (page.body, end)
        self._responses[form, gzip] = now, response
        return response
