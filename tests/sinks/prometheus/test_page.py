"""That a page is always a page: hostile names, values that are no numbers, gzip."""

import gzip
import zlib
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contracts import HttpRequest
from pipeline.model import Snapshot, Value
from pipeline.telemetry import Point
from sinks.prometheus.page import Page
from sinks.prometheus.tail import tail
from sinks.prometheus.text import Format, header
from tests.sinks.prometheus.pages import (
    context,
    families,
    of,
    parsed,
    plain_gpus,
    scraped,
    sink_showing,
    whole,
)
from tests.support.nodes import Node, claim, gpu, reading

NAMES = st.one_of(
    st.text(st.characters(), max_size=40),
    st.text(st.sampled_from('\\"\n{}=,# \r\0\ud800\u2028é'), max_size=12),
)


def shown(name: str) -> str:
    """Return a name as the page shows it."""
    return name.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


@pytest.mark.parametrize("form", Format)
@given(names=st.tuples(NAMES, NAMES, NAMES), other=NAMES)
async def test_any_name_comes_back(form: Format, names: tuple[str, str, str], other: str) -> None:
    namespace, pod, container = names
    node = Node()
    node.has(gpu(0), gpu(1))
    node.podlist(
        claim(pod, gpu(0).uuid, namespace=namespace, container=container),
        claim(pod, gpu(1).uuid),
        claim(other, gpu(1).uuid),
    )
    node.reads(*(reading(gpu(at), "gpu_utilization_percent", 7 + at) for at in range(2)))
    series = parsed(await scraped(sink_showing(node.snapshot()), form), form)
    util = {labels["gpu"]: (labels, value) for labels, value in of(series, "DCGM_FI_DEV_GPU_UTIL")}
    labels, value = util["0"]
    assert (labels["namespace"], labels["pod"], labels["container"]) == tuple(map(shown, names))
    assert value == 7
    assert util["1"][1] == 8
    assert len(of(series, "podgpu_device_info")) == 2


@pytest.mark.parametrize("form", Format)
@given(
    values=st.lists(
        st.one_of(
            st.floats(allow_nan=True, allow_infinity=True),
            st.integers(-(1 << 70), 1 << 70),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    )
)
async def test_only_finite_numbers_reach_the_page(form: Format, values: list[Value]) -> None:
    node = Node()
    devices = [gpu(at) for at in range(len(values))]
    node.has(*devices)
    node.reads(
        *(reading(d, "power_watts", v) for d, v in zip(devices, values, strict=True)),
        *(reading(d, "gpu_temperature_celsius", 40) for d in devices),
    )
    ctx = context()
    page = await scraped(sink_showing(node.snapshot(), ctx), form)
    series = parsed(page, form)
    found = {int(labels["gpu"]): v for labels, v in of(series, "DCGM_FI_DEV_POWER_USAGE")}
    finite = {at: float(v) for at, v in enumerate(values) if abs(v) < float("inf")}
    assert found == finite
    assert len(of(series, "DCGM_FI_DEV_GPU_TEMP")) == len(values)
    dropped = ctx.own.collect({})
    lost = [
        p.value for f, points in dropped for p in points if f.name == "podgpu_sink_dropped_total"
    ]
    assert lost == ([len(values) - len(finite)] if len(finite) < len(values) else [])


async def test_a_dropped_series_is_counted_once_per_snapshot() -> None:
    node = Node()
    node.has(gpu(0))
    node.reads(reading(gpu(0), "power_watts", float("nan")), reading(gpu(0), "gpu_up", 1))
    ctx = context()
    sink = sink_showing(node.snapshot(), ctx)
    for form in (*Format, *Format):
        page = await scraped(sink, form)
        assert b"null" not in page
        assert b"POWER" not in page
    page = await scraped(sink)
    assert of(parsed(page), "podgpu_sink_dropped_total") == [
        ({"sink": "page", "reason": "not_finite"}, 1)
    ]


async def test_attributes_that_would_break_the_labels_are_left_out() -> None:
    node = Node()
    node.has(gpu(0))
    bad = ("pod", "gpu"), ("a b", "x"), ("0", "x"), ("", "x"), ("é", "x")
    node.reads(
        *(reading(gpu(0), "xid_errors", 1, attrs=(pair,)) for pair in bad),
        reading(gpu(0), "xid_errors", 3, attrs=(("xid", 'a"\n'),)),
    )
    series = parsed(await scraped(sink_showing(node.snapshot())))
    ((labels, value),) = of(series, "podgpu_xid_errors_total")
    assert (labels["xid"], value) == ('a"\n', 3)


async def test_gzip_is_one_member_with_a_fresh_tail() -> None:
    ctx = context()
    sink = sink_showing(plain_gpus(), ctx)
    pages = []
    for age in (1.0, 2.0):
        ctx.computed["podgpu_source_age_seconds"] = [Point((("source", "gpus"),), age)]
        request = HttpRequest("GET", "/metrics", {}, {"accept-encoding": "gzip"})
        answer = await sink.serve(request)
        assert answer.headers == {"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
        reader = zlib.decompressobj(wbits=31)
        page = reader.decompress(answer.body + answer.tail)
        assert reader.eof
        assert reader.unused_data == b""
        assert page == await scraped(sink)
        assert of(parsed(page), "podgpu_source_age_seconds") == [({"source": "gpus"}, age)]
        pages.append(answer)
    assert pages[0].body is pages[1].body


@given(st.binary(max_size=2000), st.lists(st.binary(max_size=200), max_size=4))
def test_gzip_of_anything(body: bytes, tails: list[bytes]) -> None:
    page = Page(body)
    for rest in tails:
        assert gzip.decompress(b"".join(page.gzipped(rest))) == body + rest
        assert b"".join(page.plain(rest)) == body + rest


async def test_the_body_is_rendered_once_and_shared() -> None:
    sink = sink_showing(plain_gpus())
    first, second = [await sink.serve(HttpRequest("GET", "/", {}, {})) for _ in range(2)]
    assert first.body is second.body


async def test_before_the_first_snapshot_there_are_podgpus_own_metrics() -> None:
    series = parsed(await scraped(sink_showing(None)))
    assert of(series, "podgpu_source_events_total") == [({"source": "gpus"}, 12)]


async def test_help_and_types() -> None:
    sink = sink_showing(plain_gpus())
    text = {f.name: f for f in families(await scraped(sink), Format.TEXT)}
    om = {f.name: f for f in families(await scraped(sink, Format.OPENMETRICS), Format.OPENMETRICS)}
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    assert (text[energy].type, om[energy].type) == ("counter", "unknown")
    assert om["podgpu_xid_errors"].type == "counter"
    assert om["DCGM_FI_DEV_FB_USED"].documentation.endswith("for itself. In MiB.")
    assert all(not family.unit for family in om.values())


@given(st.text(max_size=50))
def test_any_help_text_is_one_line(about: str) -> None:
    for form in Format:
        page = header(form, "podgpu_x_total", "counter", about) + b"podgpu_x_total 1\n" + form.end
        assert page.count(b"\n") == 3 + bool(form.end)
        (family,) = families(page, form)
        assert family.type == "counter"


def test_own_metrics_that_are_no_numbers_are_left_out() -> None:
    ctx = context()
    ctx.computed["podgpu_inbox_depth"] = [Point((), float("nan"))]
    assert b"inbox" not in tail(Format.TEXT, ctx.telemetry())


def test_a_later_snapshot_takes_the_place_of_the_page() -> None:
    sink = sink_showing(plain_gpus())
    assert b"train-0" in sink._body(Format.TEXT)
    sink._show(cast("Snapshot", None))
    assert sink._body(Format.TEXT) == b""


async def test_a_response_is_whole() -> None:
    answer = await sink_showing(plain_gpus()).serve(HttpRequest("GET", "/metrics", {}, {}))
    assert whole(answer).endswith(b"\n")
