"""A page is always valid: with hostile names, and values that are not numbers."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.base.safe_text import without_control_characters
from pipeline.base.telemetry import Point
from pipeline.exposition.text_format import Format, header, tail
from pipeline.model import Value
from tests.pipeline.exposition.pages import (
    context,
    families,
    of,
    parsed,
    plain_gpus,
    rendered,
    renderer,
)
from tests.support.examples import examples
from tests.support.nodes import Node, claim, gpu, reading

NAMES = st.one_of(
    st.text(st.characters(), max_size=40),
    st.text(st.sampled_from('\\"\n{}=,# \r\0\ud800\u2028é'), max_size=12),
)


def shown(name: str) -> str:
    """Return a name as it is on the page."""
    return without_control_characters(name)


@pytest.mark.parametrize("form", Format)
@settings(max_examples=examples(50), deadline=None)
@given(names=st.tuples(NAMES, NAMES, NAMES), other=NAMES)
def test_any_name_can_be_parsed_again(
    form: Format, names: tuple[str, str, str], other: str
) -> None:
    namespace, pod, container = names
    node = Node()
    node.has(gpu(0), gpu(1))
    node.podlist(
        claim(pod, gpu(0).uuid, namespace=namespace, container=container),
        claim(pod, gpu(1).uuid),
        claim(other, gpu(1).uuid),
    )
    node.reads(*(reading(gpu(at), "gpu_utilization_percent", 7 + at) for at in range(2)))
    series = parsed(rendered(node.snapshot(), form), form)
    util = {labels["gpu"]: (labels, value) for labels, value in of(series, "DCGM_FI_DEV_GPU_UTIL")}
    labels, value = util["0"]
    assert (labels["namespace"], labels["pod"], labels["container"]) == tuple(map(shown, names))
    assert value == 7
    assert util["1"][1] == 8
    assert len(of(series, "podgpu_device_info")) == 2


@pytest.mark.parametrize("form", Format)
@settings(max_examples=examples(50), deadline=None)
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
def test_only_finite_numbers_reach_the_page(form: Format, values: list[Value]) -> None:
    node = Node()
    devices = [gpu(at) for at in range(len(values))]
    node.has(*devices)
    node.reads(
        *(reading(d, "power_watts", v) for d, v in zip(devices, values, strict=True)),
        *(reading(d, "gpu_temperature_celsius", 40) for d in devices),
    )
    ctx = context()
    page = rendered(node.snapshot(), form, ctx=ctx)
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


def test_a_dropped_series_is_counted_once_per_snapshot() -> None:
    node = Node()
    node.has(gpu(0))
    node.reads(reading(gpu(0), "power_watts", float("nan")), reading(gpu(0), "gpu_up", 1))
    ctx = context()
    made = renderer(ctx)
    made.show(node.snapshot())
    for form in (*Format, *Format):
        page = made.body(form)
        assert b"null" not in page
        assert b"POWER" not in page
    page = tail(Format.TEXT, ctx.telemetry())
    assert of(parsed(page), "podgpu_sink_dropped_total") == [
        ({"sink": "page", "reason": "not_finite"}, 1)
    ]


def test_attributes_with_invalid_or_used_label_names_are_left_out() -> None:
    node = Node()
    node.has(gpu(0))
    bad = ("pod", "gpu"), ("a b", "x"), ("0", "x"), ("", "x"), ("é", "x")
    node.reads(
        *(reading(gpu(0), "xid_errors", 1, attrs=(pair,)) for pair in bad),
        reading(gpu(0), "xid_errors", 3, attrs=(("xid", 'a"\n'),)),
    )
    series = parsed(rendered(node.snapshot()))
    ((labels, value),) = of(series, "podgpu_xid_errors_total")
    assert (labels["xid"], value) == ('a"\n', 3)


def test_before_the_first_snapshot_the_page_has_podgpus_own_metrics() -> None:
    series = parsed(rendered(None))
    assert of(series, "podgpu_source_events_total") == [({"source": "gpus"}, 12)]


def test_help_texts_and_types_in_both_formats() -> None:
    text, om = (
        {f.name: f for f in families(rendered(plain_gpus(), form), form)} for form in Format
    )
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    assert (text[energy].type, om[energy].type) == ("counter", "unknown")
    assert om["podgpu_xid_errors"].type == "counter"
    assert om["DCGM_FI_DEV_FB_USED"].documentation.endswith("the driver reserves. In MiB.")
    assert all(not family.unit for family in om.values())


@given(st.text(max_size=50))
@example("\0")
def test_any_help_text_is_one_line(about: str) -> None:
    for form in Format:
        page = header(form, "podgpu_x_total", "counter", about) + b"podgpu_x_total 1\n" + form.end
        assert page.count(b"\n") == 3 + bool(form.end)
        # Prometheus' scanner reads a NUL as the end of the page.
        assert b"\0" not in page
        (family,) = families(page, form)
        assert family.type == "counter"


def test_own_metrics_that_are_not_finite_are_left_out() -> None:
    ctx = context()
    ctx.computed["podgpu_inbox_depth"] = [Point((), float("nan"))]
    assert b"inbox" not in tail(Format.TEXT, ctx.telemetry())


def test_a_later_snapshot_replaces_the_page() -> None:
    made = renderer()
    made.show(plain_gpus())
    assert b"train-0" in made.body(Format.TEXT)
    made.show(None)
    assert made.body(Format.TEXT) == b""
