"""What becomes of records at the end, on virtual time: O11."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pipeline.delivery.contract import Acked, Outcome, Record, Retry
from tests.pipeline.delivery.refusing import refuses, warnings
from tests.pipeline.delivery.support import Bench, points_of

pytestmark = pytest.mark.looptime(start=1000)
Answers = Callable[[Sequence[Record]], Outcome | Awaitable[Outcome]]


async def never(_: Sequence[Record]) -> Outcome:
    await asyncio.sleep(10)
    return Retry("timeout", "no answer in 10 s")


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        (refuses(), 0, 0.01),
        (refuses(after=20.0), 0, 0.01),
        (never, 2, 2.01),
    ],
    ids=["refuses", "asks for a wait", "does not answer"],
)
async def test_o11_the_end_comes_at_once_in_an_outage_and_the_rest_stays(
    answer: Answers, least: float, most: float
) -> None:
    bench = Bench()
    loop = asyncio.get_running_loop()
    bench.push.answer = answer
    async with bench.life():
        for _ in range(95):
            bench.give()
            await bench.passes(1)
        bench.give()
        begun = loop.time()
    assert least <= loop.time() - begun <= most
    # The last snapshot is in it too.
    assert points_of(bench.kept.records) == bench.value("queued") == 96
    assert bench.imbalance == 0
    assert bench.queue.closed
    bench.push.answer = lambda _: Acked()
    async with bench.life():
        await bench.passes(10)
    assert bench.push.accepted == list(range(96))
    assert bench.imbalance == 0


async def test_o11_a_receiver_that_wants_to_be_left_alone_is() -> None:
    bench = Bench()
    bench.push.answer = refuses("http_429", 3600.0)
    async with bench.life():
        bench.give()
        await bench.passes(10)
    assert len(bench.push.messages) == 1


async def test_o11_a_receiver_that_is_back_gets_what_waits_before_the_end() -> None:
    bench = Bench(path=None)
    bench.push.answer = refuses()
    async with bench.life():
        for _ in range(50):
            bench.give(*[1] * 10)
            await bench.passes(1)
        bench.push.answer = lambda _: Acked()
        bench.give()
    assert bench.push.accepted == list(range(501))
    assert bench.imbalance == 0


async def test_o11_what_waits_in_memory_is_counted_and_reported_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(path=None)
    bench.push.answer = refuses()
    async with bench.life():
        for _ in range(50):
            bench.give(2)
            await bench.passes(1)
    assert bench.by_reason("dropped_total") == {"shutdown": 100}
    assert bench.value("queued") == bench.imbalance == 0
    # No page tells it any more.
    assert [text for text in warnings(caplog) if text.startswith("100 points in memory are lost")]


@pytest.mark.parametrize("after", [None, 30.0], ids=["", "asks for a wait"])
@pytest.mark.parametrize("path", [None, Path("/queue")], ids=["memory", "disk"])
async def test_what_comes_beside_takes_nothing_along_that_is_lost_at_the_end(
    path: Path | None, after: float | None
) -> None:
    """Log records that aren't taken now stand before metrics that would be."""
    bench = Bench(path=path)
    bench.push.signals = (0, 1, 1, 0, 1, 0)

    def answer(records: Sequence[Record]) -> Outcome:
        return Retry("http_503", "busy", after) if records[0].signal else Acked()

    bench.push.answer = answer
    async with bench.life():
        bench.give(1, 1, 1, 1, 1, 1)
        await bench.passes(1)
        assert bench.push.accepted == [0]
    assert bench.imbalance == 0
    if path is None:
        assert bench.push.accepted == [0, 3, 5]
        assert bench.by_reason("rejected_total") == {"http_503": 3}
    else:
        assert bench.push.accepted == [0], "the rest is sent in the next life"
        assert bench.value("queued") == 5


async def test_o11_one_that_is_late_is_cancelled_and_everything_counted() -> None:
    bench = Bench(path=None, flush=1000)
    bench.push.answer = never
    async with bench.sink:
        running = asyncio.create_task(bench.sink.run(bench.inbox))
        bench.give(3)
        await bench.passes(1)
        bench.give(4)
        bench.inbox.close()
        await bench.passes(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert bench.by_reason("dropped_total") == {"shutdown": 7}
    assert bench.imbalance == 0
    assert (bench.push.left, bench.queue.closed) == (1, True)


async def test_the_end_waits_for_a_backlog_no_longer_than_a_flush() -> None:
    """At the backlog's pace: the disk keeps the rest."""
    bench = Bench(max_rate="1000B")
    bench.push.answer = refuses()
    async with bench.life():
        bench.give(*[1] * 100)
        await bench.passes(3)
        bench.push.answer = lambda _: Acked()
    assert 20 <= len(bench.push.accepted) <= 40
    assert bench.value("queued") == 100 - len(bench.push.accepted)


async def test_the_end_is_not_held_up_by_what_has_been_sent() -> None:
    bench = Bench()
    loop = asyncio.get_running_loop()
    async with bench.life():
        bench.give()
        await bench.passes(7.3)
        begun = loop.time()
    assert loop.time() == begun
