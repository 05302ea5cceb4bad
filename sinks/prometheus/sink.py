"""Serves the newest snapshot to whoever scrapes it."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from pipeline.component.contracts import HttpRequest, HttpResponse, SinkContext, SinkInbox
from pipeline.exposition.renderer import Renderer
from pipeline.exposition.text_format import Format
from pipeline.model import Instant, Snapshot
from sinks.prometheus.content_negotiation import choose, takes_gzip
from sinks.prometheus.options import Options
from sinks.prometheus.page_cache import Page

_SHARED_SECONDS: Final = 0.1
"""How long podgpu's own metrics on the page may be those of another scrape."""


class PrometheusSink:
    """The prometheus sink.

    A scrape takes no reading and waits for nobody: it shows the newest snapshot. What a snapshot
    looks like is worked out at its first scrape, not before, and shared by all scrapers. So are,
    for a moment, podgpu's own metrics: who scrapes without a pause costs no more than ten scrapes a
    second do.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._renderer = Renderer(options, ctx.plan, ctx.node, ctx.meter)
        self._pages: dict[Format, Page] = {}
        self._answers: dict[tuple[Format, bool], tuple[Instant, tuple[bytes, bytes]]] = {}
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._show(self._ctx.latest())
        async with AsyncExitStack() as stack:
            mounts = await stack.enter_async_context(self._ctx.http(self._options.listen))
            mounts.mount(self._options.path, self.serve, title="metrics for Prometheus")
            self._resources = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        await self._resources.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Show the newest snapshot until the inbox ends."""
        async for snapshot in inbox:
            self._show(snapshot)

    def _show(self, snapshot: Snapshot | None) -> None:
        self._renderer.show(snapshot)
        self._pages, self._answers = {}, {}

    async def serve(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape."""
        form, content_type = choose(request.headers.get("accept"))
        headers = {"Vary": "Accept, Accept-Encoding"}
        gzip = takes_gzip(request.headers.get("accept-encoding"))
        if gzip:
            headers["Content-Encoding"] = "gzip"
        body, rest = self._answer(form, gzip=gzip)
        return HttpResponse(body, content_type, headers=headers, tail=rest)

    def _answer(self, form: Format, *, gzip: bool) -> tuple[bytes, bytes]:
        now = self._ctx.clock.now()
        made = self._answers.get((form, gzip))
        if made is not None and made[0].seconds_until(now) < _SHARED_SECONDS:
            return made[1]
        page, own = self._page(form), self._renderer.tail(form, self._ctx.telemetry())
        answer = page.gzipped(own) if gzip else page.plain(own)
        self._answers[form, gzip] = now, answer
        return answer

    def _page(self, form: Format) -> Page:
        page = self._pages.get(form)
        if page is None:
            page = self._pages[form] = Page(self._renderer.body(form))
        return page
