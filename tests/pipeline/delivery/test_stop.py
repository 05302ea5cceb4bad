"""O11: tests of what happens to records when the sink stops, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pipeline.delivery.contract import Acked, Outcome, Record, Retry
from tests.pipeline.delivery.refusing import refuses, warnings
from tests.pipeline.delivery.support import Bench, points_of, virtual

pytestmark = virtual
Answers = Callable[[Sequence[Record]], Outcome | Awaitable[Outcome]]


async def no_response(_: Sequence[Record]) -> Outcome:
    await asyncio.sleep(10)
    return Retry("timeout", "no answer in 10 s")


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        (refuses(), 0, 0.01),
        (refuses(after=20.0), 0, 0.01),
        (no_response, 2, 2.01),
    ],
    ids=["refuses", "requests a delay", "does not respond"],
)
async def test_o11_the_sink_stops_immediately_in_an_outage_and_the_records_stay(
    answer: Answers, least: float, most: float
) -> None:
    bench = Bench()
    loop = asyncio.get_running_loop()
    bench.push.answer = answer
    async with bench.life():
        for _ in range(95):
            bench.give()
            await bench.wait(1)
        bench.give()
        started = loop.time()
    assert least <= loop.time() - started <= most
    # The last snapshot is included.
    assert points_of(bench.stored.records) == bench.value("queued") == 96
    assert bench.imbalance == 0
    assert bench.queue.closed
    bench.push.answer = lambda _: Acked()
    async with bench.life():
        await bench.wait(10)
    assert bench.push.accepted == list(range(96))
    assert bench.imbalance == 0


async def test_o11_a_stop_sends_nothing_before_the_delay_that_the_receiver_requested() -> None:
    bench = Bench()
    bench.push.answer = refuses("http_429", 3600.0)
    async with bench.life():
        bench.give()
        await bench.wait(10)
    assert len(bench.push.messages) == 1


async def test_o11_a_receiver_that_responds_again_gets_the_queued_records_at_the_stop() -> None:
    bench = Bench(path=None)
    bench.push.answer = refuses()
    async with bench.life():
        for _ in range(50):
            bench.give(*[1] * 10)
            await bench.wait(1)
        bench.push.answer = lambda _: Acked()
        bench.give()
    assert bench.push.accepted == list(range(501))
    assert bench.imbalance == 0


async def test_o11_records_in_memory_are_counted_as_dropped_and_logged_at_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(path=None)
    bench.push.answer = refuses()
    async with bench.life():
        for _ in range(50):
            bench.give(2)
            await bench.wait(1)
    assert bench.by_reason("dropped_total") == {"shutdown": 100}
    assert bench.value("queued") == bench.imbalance == 0
    # It is logged, because no metrics page is served any more.
    assert [text for text in warnings(caplog) if text.startswith("100 points in memory are lost")]


@pytest.mark.parametrize("after", [None, 30.0], ids=["", "requests a delay"])
@pytest.mark.parametrize("path", [None, Path("/queue")], ids=["memory", "disk"])
async def test_refused_records_of_another_signal_do_not_block_metrics_at_the_stop(
    path: Path | None, after: float | None
) -> None:
    """Log records that are not accepted now are queued before metrics that would be accepted."""
    bench = Bench(path=path)
    bench.push.signals = (0, 1, 1, 0, 1, 0)

    def answer(records: Sequence[Record]) -> Outcome:
        return Retry("http_503", "busy", after) if records[0].signal else Acked()

    bench.push.answer = answer
    async with bench.life():
        bench.give(1, 1, 1, 1, 1, 1)
        await bench.wait(1)
        assert bench.push.accepted == [0]
    assert bench.imbalance == 0
    if path is None:
        assert bench.push.accepted == [0, 3, 5]
        assert bench.by_reason("rejected_total") == {"http_503": 3}
    else:
        assert bench.push.accepted == [0], "the rest is sent after the next start"
        assert bench.value("queued") == 5


async def test_o11_a_sink_that_is_cancelled_counts_all_points() -> None:
    bench = Bench(path=None, flush=1000)
    bench.push.answer = no_response
    async with bench.sink:
        running = asyncio.create_task(bench.sink.run(bench.inbox))
        bench.give(3)
        await bench.wait(1)
        bench.give(4)
        bench.inbox.close()
        await bench.wait(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert bench.by_reason("dropped_total") == {"shutdown": 7}
    assert bench.imbalance == 0
    assert (bench.push.left, bench.queue.closed) == (1, True)


async def test_a_stop_sends_a_backlog_for_the_flush_time_only() -> None:
    """At the rate of a backlog. The rest stays on disk."""
    bench = Bench(max_rate="1000B")
    bench.push.answer = refuses()
    async with bench.life():
        bench.give(*[1] * 100)
        await bench.wait(3)
        bench.push.answer = lambda _: Acked()
    assert 20 <= len(bench.push.accepted) <= 40
    assert bench.value("queued") == 100 - len(bench.push.accepted)


async def test_a_stop_without_queued_records_is_immediate() -> None:
    bench = Bench()
    loop = asyncio.get_running_loop()
    async with bench.life():
        bench.give()
        await bench.wait(7.3)
        started = loop.time()
    assert loop.time() == started
