"""D1, D2, O1, O2: tests of outages of the receiver, in virtual time."""

import logging
import math
from collections.abc import Sequence

import pytest

from pipeline.delivery.contract import Acked, Outcome, Record, Rejected, Retry
from tests.pipeline.delivery.refusing import refuses, warnings
from tests.pipeline.delivery.support import Bench, size_of, virtual

pytestmark = virtual


@pytest.mark.slow
async def test_d1_an_outage_of_ten_minutes_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """600 s with 1000 bytes per second are sent at 4 KiB per second, the oldest first."""
    caplog.set_level(logging.INFO, "podgpu")
    bench = Bench(size=200, most_bytes=2000, max_rate="4KiB")
    async with bench.life():
        bench.push.answer = refuses()
        for _ in range(600):
            bench.give(*[1] * 5)
            await bench.wait(1)
            assert bench.imbalance == 0
        assert bench.push.accepted == []
        assert bench.value("queued") == 3000
        assert bench.value("queue_bytes") == bench.queue.most_bytes == 600_000
        assert bench.value("delivering") == 0
        assert 598 < bench.value("oldest_age_seconds") <= 600
        # With delays of up to 30 s, there are few retries.
        assert 20 <= bench.value("retries_total", reason="unavailable") <= 30
        sent_before = len(bench.push.messages)
        bench.push.answer = lambda _: Acked()
        for _ in range(260):
            bench.give(*[1] * 5)
            await bench.wait(1)
        assert bench.value("queued") < 20
        assert bench.value("delivering") == 1
        assert bench.value("oldest_age_seconds") < 2
    assert bench.push.accepted == list(range(bench.given))
    assert bench.imbalance == 0
    backlog = [
        (time, size_of(message))
        for time, message in bench.push.messages[sent_before:]
        if time < 1000 + 600 + 150
    ]
    start, end = backlog[0][0], backlog[-1][0]
    assert end - start > 100
    assert sum(size for _, size in backlog[:-1]) <= 4096 * (end - start + 1) + 2000
    # The outage is logged once.
    assert len(warnings(caplog)) == 1
    assert "refuses connections" in warnings(caplog)[0]
    messages = [r.getMessage() for r in caplog.records if "responds again" in r.getMessage()]
    assert len(messages) == 1
    assert "points are queued" in messages[0]


async def test_d2_a_full_queue_drops_the_oldest_records_and_counts_them() -> None:
    bench = Bench(size=10_000, most_bytes=20_000, max_size="1MiB")
    async with bench.life():
        bench.push.answer = refuses()
        for _ in range(300):
            bench.give(2)
            await bench.wait(1)
        assert bench.queue.most_bytes <= 1 << 20
        assert bench.value("dropped_total", reason="full") == (300 - 104) * 2
        assert bench.imbalance == 0
        bench.push.answer = lambda _: Acked()
        await bench.wait(60)
    assert bench.push.accepted == list(range(300 - 104, 300))
    assert bench.imbalance == 0


@pytest.mark.parametrize(
    ("after", "first", "second"),
    [
        (None, (0.75, 1), (1.5, 2)),
        (7.0, (7, 8.75), (7, 8.75)),
        (0.0, (0.75, 1), (1.5, 2)),
        (-3.0, (0.75, 1), (1.5, 2)),
        (1e9, (30, 30), (30, 30)),
        (math.inf, (30, 30), (30, 30)),
    ],
)
async def test_o1_o2_retries_wait_for_the_receivers_delay_or_an_own_one(
    after: float | None, first: tuple[float, float], second: tuple[float, float]
) -> None:
    bench = Bench()
    async with bench.life():
        bench.push.answer = refuses("http_429", after)
        bench.give()
        await bench.wait(120)
        one, two, three = bench.push.times[:3]
        assert first[0] <= two - one <= first[1] + 1e-6
        assert second[0] <= three - two <= second[1] + 1e-6
        bench.push.answer = lambda _: Acked()
        await bench.wait(31)
    assert bench.push.accepted == [0]
    assert bench.by_reason("retries_total") == {"http_429": len(bench.push.messages) - 1}


@pytest.mark.slow
async def test_an_outage_is_logged_again_only_if_its_reason_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(longest="5s")
    async with bench.life():
        bench.give()
        for reason in ("unavailable", "timeout", "unavailable"):
            bench.push.answer = refuses(reason)
            await bench.wait(300)
        bench.push.answer = lambda _: Acked()
        await bench.wait(5)
    assert len(warnings(caplog)) == 3


async def test_repeated_outages_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "podgpu")
    bench, turn = Bench(), 0

    def alternate(_: Sequence[Record]) -> Outcome:
        nonlocal turn
        turn += 1
        return Retry("unavailable", "not now") if turn % 2 else Acked()

    bench.push.answer = alternate
    async with bench.life():
        for _ in range(60):
            bench.give()
            await bench.wait(5)
    assert len(bench.push.accepted) == 60
    assert 5 <= len(warnings(caplog)) <= 6
    assert len([r for r in caplog.records if "responds again" in r.getMessage()]) <= 6


async def test_a_rejection_ends_an_outage() -> None:
    bench = Bench()
    async with bench.life():
        bench.push.answer = refuses()
        bench.give(1)
        await bench.wait(100)
        bench.push.answer = lambda _: Rejected("http_400", "no")
        await bench.wait(31)
        bench.push.answer = refuses()
        bench.give(1)
        await bench.wait(1.1)
        # The delays start at the minimum again.
        assert bench.push.times[-1] - bench.push.times[-2] <= 1
        bench.push.answer = lambda _: Acked()
        await bench.wait(3)
    assert bench.by_reason("rejected_total") == {"http_400": 1}
    assert bench.imbalance == 0


async def test_without_a_rate_limit_a_backlog_is_sent_immediately() -> None:
    bench = Bench(max_rate="0B")
    async with bench.life():
        bench.push.answer = refuses()
        for _ in range(100):
            bench.give(*[1] * 10)
            await bench.wait(1)
        bench.push.answer = lambda _: Acked()
        await bench.wait(31)
        first = next(time for time in bench.push.times if time > 1100)
        assert bench.push.times[-1] == first
    assert bench.push.accepted == list(range(1000))
