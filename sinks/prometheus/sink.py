"""Serves the newest snapshot to whoever scrapes it."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from pipeline.contracts import HttpRequest, HttpResponse, SinkContext, SinkInbox
from pipeline.model import Snapshot
from sinks.prometheus.labels import LabelCache
from sinks.prometheus.negotiate import choose, takes_gzip
from sinks.prometheus.options import Options
from sinks.prometheus.page import Page
from sinks.prometheus.shape import Shape
from sinks.prometheus.tail import tail
from sinks.prometheus.text import Format


class PrometheusSink:
    """The prometheus sink.

    A scrape takes no reading and waits for nobody: it shows the newest snapshot. What a snapshot
    looks like is worked out at its first scrape, not before, and shared by all scrapers.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._labels = LabelCache(ctx.node, options.inline)
        self._snapshot: Snapshot | None = None
        self._shape: Shape | None = None
        self._numbers: tuple[list[bytes], int] | None = None
        self._pages: dict[Format, Page] = {}
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
        self._snapshot = snapshot
        self._numbers = None
        self._pages = {}

    async def serve(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape."""
        form, content_type = choose(request.headers.get("accept"))
        page, own = self._page(form), tail(form, self._ctx.telemetry())
        headers = {"Vary": "Accept, Accept-Encoding"}
        if takes_gzip(request.headers.get("accept-encoding")):
            headers["Content-Encoding"] = "gzip"
            body, rest = page.gzipped(own)
        else:
            body, rest = page.plain(own)
        return HttpResponse(body, content_type, headers=headers, tail=rest)

    def _page(self, form: Format) -> Page:
        page = self._pages.get(form)
        if page is None:
            page = self._pages[form] = Page(self._body(form))
        return page

    def _body(self, form: Format) -> bytes:
        snapshot = self._snapshot
        if snapshot is None:
            return b""
        if self._shape is None or self._shape.layout is not snapshot.layout:
            self._shape = Shape(snapshot.layout, self._ctx.plan, self._labels)
        if self._numbers is None:
            self._numbers = self._shape.numbers(snapshot.readings)
            if gaps := self._numbers[1]:
                self._ctx.meter.add("podgpu_sink_dropped_total", gaps, reason="not_finite")
        return self._shape.body(form, *self._numbers)
