"""The status of a sink shows why its receiver accepts nothing; with virtual time."""

import pytest

from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import SinkStatus
from tests.pipeline.delivery.support import Bench
from tests.pipeline.status_page.scenes import started_node, status_input

pytestmark = pytest.mark.looptime(start=1000)


def sink_of(bench: Bench) -> SinkStatus:
    known = status_input(
        started_node(),
        now=bench.clock.now(),
        telemetry=bench.ctx.own,
        sinks={bench.ctx.name: "otlp"},
    )
    [found] = status_of(known).sinks
    return found


async def test_a_receiver_that_rejects_a_part_of_each_message() -> None:
    """A sink that delivers a part of the data and loses the rest has a current error."""
    bench = Bench()
    bench.push.answer = lambda _: Acked(rejected=2, message="too old")
    async with bench.life():
        bench.give(3)
        await bench.wait(1)
        sink = sink_of(bench)
        assert (sink.delivering, sink.rejected) == (True, 2)
        assert sink.error is not None
        assert sink.error.text == "the receiver permanently rejected a part of the points: too old"
        assert not sink.error.over
        bench.push.answer = lambda _: Acked()
        bench.give(3)
        await bench.wait(60)
        sink = sink_of(bench)
        assert sink.error is not None
        assert sink.error.over


@pytest.mark.parametrize(
    ("notes", "text"),
    [
        (["the queue's disk is full: make room"], "the queue's disk is full: make room"),
        ([], "queue: write fails: no_space"),
    ],
)
async def test_the_reason_is_shown_if_a_queue_cannot_be_written(
    notes: list[str], text: str
) -> None:
    bench = Bench()
    async with bench.life():
        bench.queue.notes.extend(notes)
        bench.queue.faults["write", "no_space"] = 3
        bench.give(1)
        await bench.wait(1)
        sink = sink_of(bench)
        assert sink.errors == 3
        assert sink.error is not None
        assert sink.error.text == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Retry("unavailable", "collector:4317 refuses connections"), "refuses connections"),
        (Rejected("http_401", "collector:4318 refuses: fix the token"), "fix the token"),
    ],
)
async def test_the_reason_is_shown_if_nothing_is_delivered(answer: Outcome, text: str) -> None:
    bench = Bench()
    async with bench.life():
        bench.give(3)
        await bench.wait(0.1)
        assert (sink_of(bench).delivering, sink_of(bench).error) == (True, None)
        bench.push.answer = lambda _: answer
        bench.give(3)
        await bench.wait(0.1)
        stuck = sink_of(bench)
        assert stuck.delivering is False
        assert stuck.error is not None
        assert text in stuck.error.text
        assert not stuck.error.over
        bench.push.answer = lambda _: Acked()
        bench.give(3)
        await bench.wait(60)
        recovered = sink_of(bench)
        assert recovered.delivering
        assert recovered.error is not None
        assert text in recovered.error.text
        assert recovered.error.over
        assert recovered.error.age_seconds is not None
        assert recovered.error.age_seconds >= 58
