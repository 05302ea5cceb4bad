"""A page is rendered once and compressed once, for all scrapes."""

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.telemetry import Point
from pipeline.component.contracts import HttpRequest, HttpResponse
from sinks.prometheus.options import Options
from sinks.prometheus.sink import Page, PrometheusSink
from tests.pipeline.exposition.pages import context, of, parsed, plain_gpus
from tests.support.sinks import FakeSinkContext


def sink_showing_gpus(ctx: FakeSinkContext) -> PrometheusSink:
    """Return a sink that shows a snapshot, without a listener."""
    sink = PrometheusSink(Options(), ctx)
    sink._show(plain_gpus())
    return sink


def body_of(response: HttpResponse) -> bytes:
    """Return the decompressed body of a response."""
    body = response.body + response.tail
    return gzip.decompress(body) if response.headers.get("Content-Encoding") == "gzip" else body


async def test_a_gzip_response_is_one_member_with_a_new_tail() -> None:
    ctx = context()
    sink = sink_showing_gpus(ctx)
    pages = []
    for age in (1.0, 2.0):
        ctx.computed["podgpu_source_age_seconds"] = [Point((("source", "gpus"),), age)]
        request = HttpRequest("GET", "/metrics", {}, {"accept-encoding": "gzip"})
        response = await sink.serve(request)
        assert response.headers == {"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
        reader = zlib.decompressobj(wbits=31)
        page = reader.decompress(response.body + response.tail)
        assert reader.eof
        assert reader.unused_data == b""
        assert page == body_of(await sink.serve(HttpRequest("GET", "/metrics", {}, {})))
        assert of(parsed(page), "podgpu_source_age_seconds") == [({"source": "gpus"}, age)]
        pages.append(response)
        await ctx.clock.sleep(0.1)
    assert pages[0].body is pages[1].body


@given(st.binary(max_size=2000), st.lists(st.binary(max_size=200), max_size=4))
def test_any_body_and_tail_can_be_decompressed(body: bytes, tails: list[bytes]) -> None:
    page = Page(body)
    for tail in tails:
        assert gzip.decompress(b"".join(page.gzipped(tail))) == body + tail


async def test_the_body_is_rendered_once_and_shared_by_responses() -> None:
    sink = sink_showing_gpus(context())
    first, second = [await sink.serve(HttpRequest("GET", "/", {}, {})) for _ in range(2)]
    assert first.body is second.body


async def test_r9_scrapes_without_a_pause_get_the_same_tail() -> None:
    ctx = context()
    sink = sink_showing_gpus(ctx)
    requests = [
        HttpRequest("GET", "/", {}, {"accept-encoding": encoding}) for encoding in ("gzip", "")
    ]
    first = [await sink.serve(request) for request in requests]
    again = [await sink.serve(request) for request in requests]
    assert [one.tail is other.tail for one, other in zip(first, again, strict=True)] == [True] * 2
    await ctx.clock.sleep(0.1)
    later = [await sink.serve(request) for request in requests]
    assert [one.tail is other.tail for one, other in zip(first, later, strict=True)] == [False] * 2
    sink._show(plain_gpus())
    assert (await sink.serve(requests[0])).body is not first[0].body


async def test_a_response_ends_with_a_newline() -> None:
    response = await sink_showing_gpus(context()).serve(HttpRequest("GET", "/metrics", {}, {}))
    assert body_of(response).endswith(b"\n")
