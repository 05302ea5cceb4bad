"""What `/status` says of sources and sinks, and what of it needs somebody."""

from dataclasses import replace

import msgspec
import pytest

from pipeline.base.telemetry import Meter, Telemetry
from pipeline.model import SourceLost
from pipeline.status_page.display_text import amount
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.component_tables import sinks
from pipeline.status_page.problems import problems
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.component_rows import components
from tests.pipeline.status_page.scenes import begun, known_of, said, status
from tests.support.nodes import at, gpu, kubelet_claim


def test_a_source_that_is_down_and_one_that_was() -> None:
    gone, kubelet, podlist = status("troubled").sources
    assert (gone.state, gone.error) == ("up", None)
    assert (kubelet.state, kubelet.restarts, kubelet.confirmed_seconds) == ("down", 12, 600)
    assert kubelet.error is not None
    assert (kubelet.error.age_seconds, kubelet.error.over) == (20, False)
    # Silent for long, though it never said that anything is wrong.
    assert (podlist.state, podlist.age_seconds) == ("up", 400)
    assert podlist.error is not None
    assert (podlist.error.age_seconds, podlist.error.over) == (500, True)


def test_the_reason_of_now_stands_before_the_one_that_was_reported_last() -> None:
    node = begun()
    node.say(SourceLost("finished"), "gpus")
    telemetry = Telemetry()
    Meter(telemetry, "source", "gpus").set_problem("something else", at(1))
    source = status_of(known_of(node, telemetry=telemetry)).sources[0]
    assert source.error is not None
    assert (source.error.text, source.error.over) == ("finished", False)


def test_a_source_that_is_down_reports_since_when_it_says_so() -> None:
    """Whether or not podgpu was told of a trouble besides: from the start, and again later."""
    node = begun()
    node.seconds = 20
    node.say(SourceLost("no driver"), "gpus")

    def ages(now: float) -> list[float | None]:
        found = status_of(known_of(node, now=at(now))).sources
        return [each.error.age_seconds if each.error else None for each in found]

    assert ages(600) == [580, None]
    node.seconds = 590
    node.say(SourceLost("no driver"), "gpus")
    assert ages(600) == [10, None]
    node.has(gpu(0))
    assert ages(601) == [None, None]
    node.say(SourceLost("gone"), "gpus")
    assert ages(601) == [11, None]


def test_ids_that_fit_no_device() -> None:
    node = begun()
    node.has(gpu(0))
    said(node, kubelet_claim("a", "GPU-nobody"))
    found = status_of(known_of(node))
    assert found.sources[1].unresolved == 1
    assert "source kubelet reports 1 id that matches no device" in problems(found)


def test_a_sink_whose_receiver_takes_nothing() -> None:
    metrics, push = status("troubled").sinks
    assert (metrics.kind, metrics.up, metrics.queued, metrics.dropped) == (
        "prometheus",
        None,
        None,
        None,
    )
    assert (push.kind, push.up, push.delivering) == ("otlp", True, False)
    assert (push.queued, push.queue_bytes, push.oldest_seconds) == (12_345, 3 << 20, 290)
    assert (push.emitted, push.dropped, push.rejected) == (1_000_000, 7, None)
    assert push.error is not None
    assert not push.error.over


def test_a_sink_that_is_well_again() -> None:
    telemetry = Telemetry()
    meter = Meter(telemetry, "sink", "metrics")
    meter.set("podgpu_sink_up", 0)
    meter.set_problem("the port is taken", at(590))
    known = known_of(begun(), telemetry=telemetry)
    assert "sink metrics is down: the port is taken" in problems(status_of(known))
    meter.set("podgpu_sink_up", 1)
    [sink] = status_of(replace(known, telemetry=telemetry.collect({}))).sinks
    assert sink.error is not None
    assert sink.error.over


def test_nothing_reports_when_what_a_component_only_warned_of_is_over() -> None:
    telemetry = Telemetry(lambda: at(590))
    meter = Meter(telemetry, "sink", "node")
    meter.set("podgpu_sink_up", 1)
    meter.add("podgpu_sink_dropped_total", 1, reason="queue_full")
    meter.set_problem("somebody else writes it too", at(560), warning=True)
    Meter(telemetry, "source", "gpus").set_problem("an odd answer", at(1), warning=True)
    found = status_of(known_of(begun(), telemetry=telemetry, sinks={"node": "node"}))
    errors = [found.sinks[0].error, found.sources[0].error]
    assert [(error.text, error.over) for error in errors if error is not None] == [
        ("somebody else writes it too", None),
        ("an odd answer", None),
    ]
    # And nobody knows that it is why something is lost.
    assert [given_out for given_out in problems(found) if given_out.startswith("sink")] == [
        "sink node loses data, 1 dropped since podgpu started"
    ]
    assert any(
        given_out.startswith("    warning")
        and "over" not in given_out
        and "somebody else" in given_out
        for given_out in components(found, 120)
    )
    assert '<span class="warn">somebody else writes it too</span>' in sinks(found.sinks)


def test_what_a_sink_warned_of_is_not_why_it_is_down() -> None:
    telemetry = Telemetry()
    meter = Meter(telemetry, "sink", "node")
    meter.set_problem("somebody else writes it too", at(560), warning=True)
    meter.set("podgpu_sink_up", 0)
    found = status_of(known_of(begun(), telemetry=telemetry, sinks={"node": "node"}))
    assert "sink node is down" in problems(found)


def test_what_is_reported_of_a_component_goes_with_it() -> None:
    telemetry = Telemetry()
    Meter(telemetry, "sink", "a").set_problem("x", at(0))
    Meter(telemetry, "source", "a").set_problem("y", at(0))
    telemetry.forget(("sink", "a"))
    assert list(telemetry.problems) == [("source", "a")]


def sink_with(*said: tuple[str, float], trouble: float | None = None) -> StatusDocument:
    """A node, at 600 s, whose sink has had these metrics since 590, and an error at a second."""
    telemetry = Telemetry(lambda: at(590))
    meter = Meter(telemetry, "sink", "push")
    for family, value in (("up", 1), ("delivering", 1), *said):
        if family.endswith("_total"):
            meter.add(f"podgpu_sink_{family}", value, reason="x")
        else:
            meter.set(f"podgpu_sink_{family}", value)
    if trouble is not None:
        meter.set_problem("the disk is full", at(trouble))
    return status_of(known_of(begun(), telemetry=telemetry, sinks={"push": "otlp"}))


UNWRITABLE = (
    "sink push: its queue cannot be written to disk; data that waits in memory is lost if podgpu "
    "stops"
)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([("queue_writable", 0)], UNWRITABLE),
        ([("queue_writable", 1)], None),
        (
            [("dropped_total", 5_000_000)],
            f"sink push loses data, {amount(5_000_000)} dropped since podgpu started",
        ),
        ([("rejected_total", 3)], "sink push loses data, 3 rejected since podgpu started"),
        (
            [("dropped_total", 2), ("rejected_total", 3)],
            "sink push loses data, 2 dropped, 3 rejected since podgpu started",
        ),
        ([("dropped_total", 0), ("rejected_total", 0)], None),
        ([("errors_total", 900)], None),
        ([], None),
    ],
)
def test_a_sink_that_delivers_and_is_not_well(
    said: list[tuple[str, float]], wanted: str | None
) -> None:
    found = [text for text in problems(sink_with(*said)) if "sink" in text]
    assert found == ([] if wanted is None else [wanted])


def test_what_is_known_of_a_sink_s_losses() -> None:
    [sink] = sink_with(("queue_writable", 0), ("errors_total", 900), ("dropped_total", 7)).sinks
    assert (sink.queue_writable, sink.errors, sink.lost_seconds) == (False, 900, 10)
    [sink] = sink_with().sinks
    assert (sink.queue_writable, sink.errors, sink.lost_seconds) == (None, None, None)


@pytest.mark.parametrize(
    ("said", "trouble", "over"),
    [
        ([], 599, True),
        ([("queue_writable", 1), ("dropped_total", 0)], 599, True),
        ([("queue_writable", 0)], 1, False),
        ([("rejected_total", 3)], 580, False),
        ([("dropped_total", 3)], 580, False),
        ([("rejected_total", 3)], 500, True),
        ([("delivering", 0)], 1, False),
        ([("up", 0)], 1, False),
    ],
)
def test_an_error_is_over_once_nothing_is_lost_by_it(
    said: list[tuple[str, float]], trouble: float, over: bool
) -> None:
    [sink] = sink_with(*said, trouble=trouble).sinks
    assert sink.error is not None
    assert sink.error.over is over


def test_why_a_sink_loses_data_is_reported_while_it_does() -> None:
    lost = ("dropped_total", 3)
    assert problems(sink_with(lost, trouble=590))[-1].endswith("podgpu started: the disk is full")
    assert problems(sink_with(lost, trouble=100))[-1].endswith("podgpu started")


@pytest.mark.parametrize("family", ["dropped_total", "rejected_total"])
def test_a_loss_needs_no_one_once_it_is_long_ago(family: str) -> None:
    """Whoever looked before: the first look at a loss of yesterday doesn't make it one of now."""
    moments = [100.0]
    telemetry = Telemetry(lambda: at(moments[0]))
    meter = Meter(telemetry, "sink", "push")
    for each in ("dropped_total", "rejected_total"):
        meter.add(f"podgpu_sink_{each}", 0, reason="x")

    def lost(seconds: float, reason: str) -> None:
        moments[0] = seconds
        meter.add(f"podgpu_sink_{family}", 5, reason=reason)

    def looked(seconds: float) -> tuple[float | None, bool]:
        known = known_of(begun(), now=at(seconds), telemetry=telemetry, sinks={"push": "otlp"})
        found = status_of(known)
        return found.sinks[0].lost_seconds, any("loses" in text for text in problems(found))

    assert looked(100) == (None, False)
    lost(100, "queue_full")
    assert looked(86_500) == (86_400, False)
    assert looked(1001) == (901, False)
    assert looked(1000) == (900, True)
    # Nothing is lost by what raises no count, nor by what other sinks and counters tell.
    moments[0] = 1000
    meter.add(f"podgpu_sink_{family}", 0, reason="queue_full")
    meter.add("podgpu_sink_emitted_total", 9)
    Meter(telemetry, "sink", "other").add(f"podgpu_sink_{family}", 1, reason="x")
    assert looked(1100) == (1000, False)
    # The last of several reasons counts, in whichever order they came up.
    lost(1050, "too_old")
    assert looked(1100) == (50, True)
    lost(1070, "queue_full")
    assert looked(1100) == (30, True)
    telemetry.forget(("sink", "push"))
    assert looked(1200) == (None, False)


def test_a_loss_of_which_no_one_noted_when_is_not_one_of_now() -> None:
    telemetry = Telemetry()
    Meter(telemetry, "sink", "push").add("podgpu_sink_dropped_total", 5, reason="x")
    found = status_of(known_of(begun(), telemetry=telemetry, sinks={"push": "otlp"}))
    assert (found.sinks[0].dropped, found.sinks[0].lost_seconds) == (5, None)
    assert not any("loses" in text for text in problems(found))


@pytest.mark.parametrize(
    ("age", "confirmed", "wanted"),
    [
        (300, 300, None),
        (301, None, "source kubelet is up, but has not reported for 5 min"),
        (301, 301, "source kubelet is up, but has not reported for 5 min"),
        (5, 301, "source kubelet has not confirmed its reports of holders for 5 min"),
        (5, None, None),
        (None, None, None),
    ],
)
def test_a_source_that_is_up_and_silent(
    age: float | None, confirmed: float | None, wanted: str | None
) -> None:
    """By the bounds of the alerts."""
    found = status("two-gpus")
    kubelet = msgspec.structs.replace(
        found.sources[1], age_seconds=age, confirmed_seconds=confirmed
    )
    sources = (found.sources[0], kubelet)
    given_out = problems(msgspec.structs.replace(found, sources=sources))
    assert given_out == ([] if wanted is None else [wanted])
    down = msgspec.structs.replace(kubelet, state="down")
    given_out = problems(msgspec.structs.replace(found, sources=(found.sources[0], down)))
    assert given_out == ["source kubelet is down: no reason is known"]
