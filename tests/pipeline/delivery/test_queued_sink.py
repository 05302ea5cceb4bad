"""Tests of `QueuedSink` with all outcomes of sending, in virtual time."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from pipeline.delivery.contract import Acked, Outcome, Record, Rejected, Retry, TooLarge
from pipeline.model import Layout, Snapshot
from tests.pipeline.delivery.refusing import warnings
from tests.pipeline.delivery.support import Bench, number_of, size_of, virtual

pytestmark = virtual


async def test_records_are_sent_immediately_and_counted() -> None:
    bench = Bench()
    async with bench.life():
        bench.give(3, 4)
        await bench.wait(0.1)
        assert bench.push.accepted == [0, 1]
        assert bench.push.times == [1000]
        assert bench.value("produced_total") == bench.value("emitted_total") == 7
        assert bench.value("queued") == bench.imbalance == 0
        assert bench.value("delivering") == 1
    assert (bench.push.entered, bench.push.left, bench.queue.closed) == (1, 1, True)


async def test_all_series_with_known_labels_exist_from_the_start() -> None:
    bench = Bench()
    async with bench.sink:
        own = {family.name for family, _ in bench.ctx.own.collect({})}
    assert own == {
        "podgpu_sink_dropped_total",
        "podgpu_sink_emitted_total",
        "podgpu_sink_oldest_age_seconds",
        "podgpu_sink_produced_total",
        "podgpu_sink_queue_bytes",
        "podgpu_sink_queue_writable",
        "podgpu_sink_queued",
        "podgpu_sink_recovered_total",
        "podgpu_sink_rejected_total",
    }


async def test_a_snapshot_without_records_sends_nothing() -> None:
    bench = Bench()
    async with bench.life():
        bench.inbox.offer(Snapshot(bench.clock.now(), Layout((), {}), (), ()))
        await bench.wait(5)
    assert bench.push.messages == []


async def test_records_that_arrive_during_a_message_are_sent_together() -> None:
    bench = Bench()

    async def slow(_: Sequence[Record]) -> Outcome:
        await asyncio.sleep(5)
        return Acked()

    bench.push.answer = slow
    async with bench.life():
        for _ in range(5):
            bench.give()
            await bench.wait(1)
        await bench.wait(10)
    assert [[number_of(r) for r in message] for _, message in bench.push.messages] == [
        [0],
        [1, 2, 3, 4],
    ]


@pytest.mark.parametrize("reason", ["http_400", "http_401", "http_404", "http_500"])
async def test_o3_records_that_are_refused_permanently_are_not_sent_again(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "podgpu")
    bench = Bench()
    bench.push.answer = lambda _: Rejected(reason, "collector:4318 refuses: fix the token")
    async with bench.life():
        for _ in range(119):
            bench.give(5)
            await bench.wait(1)
        assert bench.value("delivering") == 0
    assert len(bench.push.messages) == 119
    assert bench.by_reason("rejected_total") == {reason: 595}
    assert bench.by_reason("retries_total") == {}
    assert bench.imbalance == 0
    levels = [r.levelno for r in caplog.records if "fix the token" in r.getMessage()]
    assert levels.count(logging.WARNING) == 2
    assert levels.count(logging.DEBUG) == 117


async def test_o3_a_message_that_is_too_large_is_split() -> None:
    """The receiver accepts at most 450 bytes: the sink learns this once, not with each message."""
    bench = Bench(size=100, most_bytes=1600)

    def limit(records: Sequence[Record]) -> Outcome:
        return TooLarge("413") if size_of(records) > 450 else Acked()

    bench.push.answer = limit
    async with bench.life():
        bench.give(*[1] * 16)
        await bench.wait(0.1)
        sizes = [len(message) for _, message in bench.push.messages]
        assert sizes == [16, 8, 4, 4, 4, 4]
        assert bench.push.accepted == list(range(16))
        for _ in range(50):
            bench.give(*[1] * 16)
            await bench.wait(0.1)
        refused = [m for _, m in bench.push.messages if size_of(m) > 450]
        # Sometimes a larger message is tried, but not a much larger one.
        assert len(refused) <= 2 + 50
        assert max(map(size_of, refused[2:]), default=0) <= 500
    assert bench.push.accepted == list(range(51 * 16))
    assert bench.by_reason("rejected_total") == {}
    assert bench.by_reason("retries_total") == {}
    assert bench.imbalance == 0


async def test_o3_a_single_record_that_is_too_large_is_counted_as_rejected() -> None:
    bench = Bench(size=100, most_bytes=1600)

    def refuse_record_5(records: Sequence[Record]) -> Outcome:
        return TooLarge("413") if 5 in map(number_of, records) else Acked()

    bench.push.answer = refuse_record_5
    async with bench.life():
        bench.give(*[2] * 16)
        await bench.wait(0.1)
    assert bench.push.accepted == [n for n in range(16) if n != 5]
    assert bench.by_reason("rejected_total") == {"too_large": 2}
    assert bench.imbalance == 0


async def test_o9_a_record_over_the_message_size_limit_is_never_sent() -> None:
    bench = Bench(size=5000, most_bytes=4096)
    async with bench.life():
        bench.give(1, 2)
        await bench.wait(1)
        bench.push.size = 1000
        await bench.wait(1)
        bench.give(*[1] * 8)
        await bench.wait(1)
        bench.push.size = 5000
        bench.give(4)
        await bench.wait(1)
    assert all(size_of(message) <= 4096 for _, message in bench.push.messages)
    assert len(bench.push.accepted) == bench.push.encoded - 3
    assert bench.by_reason("rejected_total") == {"too_large": 7}
    assert bench.imbalance == 0


async def test_o4_a_partial_success_is_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.push.answer = lambda _: Acked(2, "too old")
    async with bench.life():
        for _ in range(119):
            bench.give(5)
            await bench.wait(1)
    assert len(bench.push.messages) == 119
    assert bench.value("emitted_total") == 3 * 119
    assert bench.by_reason("rejected_total") == {"partial": 2 * 119}
    assert bench.imbalance == 0
    assert len(warnings(caplog)) == 2
    assert "2 of 5 points" in warnings(caplog)[0]
    assert "too old" in warnings(caplog)[0]


async def test_o4_a_warning_of_the_receiver_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.push.answer = lambda _: Acked(0, "use the new endpoint")
    async with bench.life():
        for _ in range(10):
            bench.give(5)
            await bench.wait(1)
    assert bench.value("emitted_total") == 50
    assert bench.value("rejected_total") == 0
    assert len(warnings(caplog)) == 1
    assert "use the new endpoint" in warnings(caplog)[0]


@pytest.mark.parametrize(("reported", "counted"), [(-3, 0), (6, 5), (1 << 63, 5)])
async def test_o4_an_impossible_number_of_rejected_points_is_corrected(
    reported: int, counted: int
) -> None:
    bench = Bench()
    bench.push.answer = lambda _: Acked(reported, "")
    async with bench.life():
        bench.give(5)
        await bench.wait(1)
    assert bench.value("rejected_total") == counted
    assert bench.value("emitted_total") == 5 - counted


async def test_o6_a_retry_sends_exactly_the_same_bytes() -> None:
    """Even if more records have arrived: the receiver may have accepted it without a response."""
    bench, turn = Bench(), 0

    def disconnect(_: Sequence[Record]) -> Outcome:
        nonlocal turn
        turn += 1
        return Acked() if turn % 4 == 0 else Retry("connection", "reset before an answer came")

    bench.push.answer = disconnect
    async with bench.life():
        for _ in range(30):
            bench.give(1, 2)
            await bench.wait(3)
        await bench.wait(60)
    messages = [[record.data for record in message] for _, message in bench.push.messages]
    assert len(messages) > 12
    for begin in range(0, len(messages) // 4 * 4, 4):
        assert messages[begin : begin + 4] == [messages[begin]] * 4
    assert sorted(bench.push.accepted) == list(range(60))


async def test_records_of_a_failed_message_that_were_accepted_are_not_sent_again() -> None:
    bench = Bench()
    room = 3

    def accept_some(records: Sequence[Record]) -> Outcome:
        nonlocal room
        if len(records) <= room:
            room -= len(records)
            return Acked()
        accepted, room = room, 0
        bench.push.accepted += map(number_of, records[:accepted])
        return Retry("no_space", "the disk is full", accepted=accepted)

    bench.push.answer = accept_some
    async with bench.life():
        bench.give(*[2] * 8)
        await bench.wait(0.5)
        assert bench.value("emitted_total") == 6
        assert bench.value("queued") == 10
        assert bench.imbalance == 0
        await bench.wait(20)
        room = 1 << 40
        await bench.wait(31)
    assert bench.push.accepted == list(range(8))


async def test_without_a_backlog_the_rate_is_not_limited() -> None:
    """10 kB per second are sent, although a backlog would be limited to 1 kB per second."""
    bench = Bench(size=1000, most_bytes=5000, max_rate="1KiB")
    async with bench.life():
        for _ in range(10):
            bench.give(*[1] * 10)
            await bench.wait(1)
            assert bench.value("queued") == 0


@pytest.mark.parametrize("delivering", [True, False])
async def test_only_the_main_signal_decides_whether_the_sink_is_delivering(
    delivering: bool,
) -> None:
    """Accepted log records do not hide refused metrics, and the reverse."""
    bench = Bench()
    seen: list[float | None] = []
    bench.push.signals = (0, 1)
    outcomes = (Acked(), Rejected("http_401", "who?"))

    def answer(records: Sequence[Record]) -> Outcome:
        seen.append(bench.value("delivering") if len(seen) else None)
        return outcomes[(records[0].signal == 0) != delivering]

    bench.push.answer = answer
    async with bench.life():
        bench.give(1, 1, 1, 1)
        await bench.wait(1)
        assert bench.value("delivering") == delivering
        assert seen == [None, delivering, delivering, delivering]
        assert bench.imbalance == 0


@pytest.mark.slow
async def test_o10_a_sink_whose_receiver_hangs_does_not_affect_another_sink() -> None:
    dead, well = Bench(name="dead"), Bench(name="well")

    async def hangs(_: Sequence[Record]) -> Outcome:
        await asyncio.sleep(10)
        return Retry("timeout", "no answer in 10 s")

    dead.push.answer = hangs
    async with dead.life(), well.life():
        for _ in range(300):
            dead.give()
            well.give()
            await asyncio.sleep(1)
            assert well.value("queued") == 0
        assert dead.value("queued") == 300
        assert well.push.accepted == list(range(300))
        assert dead.imbalance == well.imbalance == 0
