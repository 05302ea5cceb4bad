"""Sources and sinks in `/status`, and the problems that it reports about them."""

from dataclasses import replace

import msgspec
import pytest

from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.registry import OWN_FAMILIES
from pipeline.model import SourceLost
from pipeline.status_page.display_text import amount
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.tables import sinks
from pipeline.status_page.problem_text import problems
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.component_lines import component_lines
from podgpu.cli.top.styled_text import plain_text
from tests.pipeline.status_page.scenes import report_claims, started_node, status, status_input
from tests.support.nodes import at, gpu, kubelet_claim


def test_a_source_that_is_down_and_one_that_was_down() -> None:
    gpus, kubelet, podlist = status("troubled").sources
    assert (gpus.state, gpus.error) == ("up", None)
    assert (kubelet.state, kubelet.restarts, kubelet.confirmed_seconds) == ("down", 12, 600)
    assert kubelet.error is not None
    assert (kubelet.error.age_seconds, kubelet.error.over) == (20, False)
    # Silent for a long time, although it never reported an error.
    assert (podlist.state, podlist.age_seconds) == ("up", 400)
    assert podlist.error is not None
    assert (podlist.error.age_seconds, podlist.error.over) == (500, True)


def test_the_current_reason_takes_precedence_over_an_earlier_error() -> None:
    node = started_node()
    node.say(SourceLost("finished"), "gpus")
    telemetry = Telemetry(families=OWN_FAMILIES)
    Meter(telemetry, "source", "gpus").set_problem("something else", at(1))
    source = status_of(status_input(node, telemetry=telemetry)).sources[0]
    assert source.error is not None
    assert (source.error.text, source.error.over) == ("finished", False)


def test_a_source_that_is_down_shows_the_time_of_its_last_report() -> None:
    """The time is that of the last report of the loss, without and with an earlier loss."""
    node = started_node()
    node.seconds = 20
    node.say(SourceLost("no driver"), "gpus")

    def ages(now: float) -> list[float | None]:
        found = status_of(status_input(node, now=at(now))).sources
        return [each.error.age_seconds if each.error else None for each in found]

    assert ages(600) == [580, None]
    node.seconds = 590
    node.say(SourceLost("no driver"), "gpus")
    assert ages(600) == [10, None]
    node.has(gpu(0))
    assert ages(601) == [None, None]
    node.say(SourceLost("gone"), "gpus")
    assert ages(601) == [11, None]


def test_ids_that_match_no_device_are_counted() -> None:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, kubelet_claim("a", "GPU-unknown"))
    found = status_of(status_input(node))
    assert found.sources[1].unresolved == 1
    assert "source kubelet reports 1 id that matches no device" in problems(found)


def test_a_sink_whose_receiver_does_not_respond() -> None:
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


def test_a_sink_that_has_recovered() -> None:
    telemetry = Telemetry(families=OWN_FAMILIES)
    meter = Meter(telemetry, "sink", "metrics")
    meter.set("podgpu_sink_up", 0)
    meter.set_problem("the port is taken", at(590))
    known = status_input(started_node(), telemetry=telemetry)
    assert "sink metrics is down: the port is taken" in problems(status_of(known))
    meter.set("podgpu_sink_up", 1)
    [sink] = status_of(replace(known, telemetry=telemetry.collect({}))).sinks
    assert sink.error is not None
    assert sink.error.over


def test_it_is_unknown_whether_a_warning_is_over() -> None:
    telemetry = Telemetry(lambda: at(590), OWN_FAMILIES)
    meter = Meter(telemetry, "sink", "node")
    meter.set("podgpu_sink_up", 1)
    meter.add("podgpu_sink_dropped_total", 1, reason="queue_full")
    meter.set_problem("another program writes it too", at(560), warning=True)
    Meter(telemetry, "source", "gpus").set_problem("an odd answer", at(1), warning=True)
    found = status_of(status_input(started_node(), telemetry=telemetry, sinks={"node": "node"}))
    errors = [found.sinks[0].error, found.sources[0].error]
    assert [(error.text, error.over) for error in errors if error is not None] == [
        ("another program writes it too", None),
        ("an odd answer", None),
    ]
    # It is also unknown whether the warning is the cause of the loss.
    assert [text for text in problems(found) if text.startswith("sink")] == [
        "sink node loses data, 1 dropped since podgpu started"
    ]
    assert any(
        text.startswith("    warning") and "over" not in text and "another program" in text
        for text in map(plain_text, component_lines(found, 120))
    )
    assert '<span class="warn">another program writes it too</span>' in sinks(found.sinks)


def test_a_warning_of_a_sink_is_not_shown_as_the_reason_that_it_is_down() -> None:
    telemetry = Telemetry(families=OWN_FAMILIES)
    meter = Meter(telemetry, "sink", "node")
    meter.set_problem("another program writes it too", at(560), warning=True)
    meter.set("podgpu_sink_up", 0)
    found = status_of(status_input(started_node(), telemetry=telemetry, sinks={"node": "node"}))
    assert "sink node is down" in problems(found)


def test_errors_of_a_removed_component_are_removed() -> None:
    telemetry = Telemetry(families=OWN_FAMILIES)
    Meter(telemetry, "sink", "a").set_problem("x", at(0))
    Meter(telemetry, "source", "a").set_problem("y", at(0))
    telemetry.forget(("sink", "a"))
    assert list(telemetry.problems) == [("source", "a")]


def sink_with(*metrics: tuple[str, float], error_at: float | None = None) -> StatusDocument:
    """Return the status at 600 s; the sink has these metrics since 590 s, and an error if given."""
    telemetry = Telemetry(lambda: at(590), OWN_FAMILIES)
    meter = Meter(telemetry, "sink", "push")
    for family, value in (("up", 1), ("delivering", 1), *metrics):
        if family.endswith("_total"):
            meter.add(f"podgpu_sink_{family}", value, reason="x")
        else:
            meter.set(f"podgpu_sink_{family}", value)
    if error_at is not None:
        meter.set_problem("the disk is full", at(error_at))
    return status_of(status_input(started_node(), telemetry=telemetry, sinks={"push": "otlp"}))


UNWRITABLE = (
    "sink push: its queue cannot be written to disk; data that waits in memory is lost if podgpu "
    "stops"
)


@pytest.mark.parametrize(
    ("metrics", "expected"),
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
def test_a_sink_that_delivers_can_have_a_problem(
    metrics: list[tuple[str, float]], expected: str | None
) -> None:
    found = [text for text in problems(sink_with(*metrics)) if "sink" in text]
    assert found == ([] if expected is None else [expected])


def test_losses_of_a_sink_are_reported() -> None:
    [sink] = sink_with(("queue_writable", 0), ("errors_total", 900), ("dropped_total", 7)).sinks
    assert (sink.queue_writable, sink.errors, sink.lost_seconds) == (False, 900, 10)
    [sink] = sink_with().sinks
    assert (sink.queue_writable, sink.errors, sink.lost_seconds) == (None, None, None)


@pytest.mark.parametrize(
    ("metrics", "error_at", "over"),
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
def test_an_error_is_over_once_no_more_data_is_lost(
    metrics: list[tuple[str, float]], error_at: float, over: bool
) -> None:
    [sink] = sink_with(*metrics, error_at=error_at).sinks
    assert sink.error is not None
    assert sink.error.over is over


def test_the_reason_of_a_loss_is_reported_while_it_is_current() -> None:
    lost = ("dropped_total", 3)
    assert problems(sink_with(lost, error_at=590))[-1].endswith("podgpu started: the disk is full")
    assert problems(sink_with(lost, error_at=100))[-1].endswith("podgpu started")


@pytest.mark.parametrize("family", ["dropped_total", "rejected_total"])
def test_a_loss_is_no_problem_after_15_minutes(family: str) -> None:
    """The time of the loss counts, also if the status is requested for the first time later."""
    moments = [100.0]
    telemetry = Telemetry(lambda: at(moments[0]), OWN_FAMILIES)
    meter = Meter(telemetry, "sink", "push")
    for each in ("dropped_total", "rejected_total"):
        meter.add(f"podgpu_sink_{each}", 0, reason="x")

    def lost(seconds: float, reason: str) -> None:
        moments[0] = seconds
        meter.add(f"podgpu_sink_{family}", 5, reason=reason)

    def status_at(seconds: float) -> tuple[float | None, bool]:
        known = status_input(
            started_node(), now=at(seconds), telemetry=telemetry, sinks={"push": "otlp"}
        )
        found = status_of(known)
        return found.sinks[0].lost_seconds, any("loses" in text for text in problems(found))

    assert status_at(100) == (None, False)
    lost(100, "queue_full")
    assert status_at(86_500) == (86_400, False)
    assert status_at(1001) == (901, False)
    assert status_at(1000) == (900, True)
    # An increase by 0, other metrics and other sinks are no loss of this sink.
    moments[0] = 1000
    meter.add(f"podgpu_sink_{family}", 0, reason="queue_full")
    meter.add("podgpu_sink_emitted_total", 9)
    Meter(telemetry, "sink", "other").add(f"podgpu_sink_{family}", 1, reason="x")
    assert status_at(1100) == (1000, False)
    # The latest of several reasons counts, in any order.
    lost(1050, "too_old")
    assert status_at(1100) == (50, True)
    lost(1070, "queue_full")
    assert status_at(1100) == (30, True)
    telemetry.forget(("sink", "push"))
    assert status_at(1200) == (None, False)


def test_a_loss_at_an_unknown_time_is_no_current_problem() -> None:
    telemetry = Telemetry(families=OWN_FAMILIES)
    Meter(telemetry, "sink", "push").add("podgpu_sink_dropped_total", 5, reason="x")
    found = status_of(status_input(started_node(), telemetry=telemetry, sinks={"push": "otlp"}))
    assert (found.sinks[0].dropped, found.sinks[0].lost_seconds) == (5, None)
    assert not any("loses" in text for text in problems(found))


@pytest.mark.parametrize(
    ("age", "confirmed", "expected"),
    [
        (300, 300, None),
        (301, None, "source kubelet is up, but has not reported for 5 min"),
        (301, 301, "source kubelet is up, but has not reported for 5 min"),
        (5, 301, "source kubelet has not confirmed its reports of holders for 5 min"),
        (5, None, None),
        (None, None, None),
    ],
)
def test_a_source_that_is_up_and_silent_is_a_problem(
    age: float | None, confirmed: float | None, expected: str | None
) -> None:
    """The limits are those of the alerts."""
    found = status("two-gpus")
    kubelet = msgspec.structs.replace(
        found.sources[1], age_seconds=age, confirmed_seconds=confirmed
    )
    sources = (found.sources[0], kubelet)
    found_problems = problems(msgspec.structs.replace(found, sources=sources, problems=None))
    assert found_problems == ([] if expected is None else [expected])
    down = msgspec.structs.replace(kubelet, state="down")
    found_problems = problems(
        msgspec.structs.replace(found, sources=(found.sources[0], down), problems=None)
    )
    assert found_problems == ["source kubelet is down: no reason is known"]
