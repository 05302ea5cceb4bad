"""What podgpu itself makes, against what it may send while data waits; on virtual time."""

import logging

import pytest

from pipeline.delivery.contract import Acked
from tests.pipeline.delivery.refusing import refuses, warnings
from tests.pipeline.delivery.support import Bench

pytestmark = pytest.mark.looptime(start=1000)


async def passes(bench: Bench, seconds: int, each: int) -> None:
    """So many records in each second."""
    for _ in range(seconds):
        bench.give(*[1] * each)
        await bench.passes(1)


async def test_r8_what_is_made_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(size=100, max_rate="1KiB")
    async with bench.life():
        await passes(bench, 59, 5)
        assert bench.value("produced_bytes_per_second") == 0, "not yet"
        await passes(bench, 3, 5)
        assert bench.value("produced_bytes_per_second") == pytest.approx(500, rel=0.05)
    assert warnings(caplog) == []


async def test_r8_podgpu_says_that_it_makes_more_than_max_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a receiver that takes everything: what waits never gets less, and is counted."""
    caplog.set_level(logging.INFO, "podgpu")
    bench = Bench(size=10_000, most_bytes=50_000, max_rate="50KiB", max_size="1MiB")
    async with bench.life():
        bench.push.answer = refuses()
        await passes(bench, 3, 10)
        bench.push.answer = lambda _: Acked()
        await passes(bench, 300, 10)
        [given_out] = [text for text in warnings(caplog) if "max_rate" in text]
        for word in (
            "produces 100.9 KiB per second",
            "50KiB",
            "the oldest points are dropped",
            "raise queue.max_rate",
        ):
            assert word in given_out
        [trouble] = bench.ctx.own.problems.values()
        assert "max_rate" in trouble.text
        assert bench.value("dropped_total") > 0
        assert bench.imbalance == 0
        await passes(bench, 130, 1)
        said = [r.getMessage() for r in caplog.records if "less than queue.max_rate" in r.msg]
        assert len(said) == 1
        assert bench.value("queued") < 20


@pytest.mark.parametrize("max_rate", ["0B", "4MiB"])
async def test_what_may_be_sent_is_no_news(caplog: pytest.LogCaptureFixture, max_rate: str) -> None:
    bench = Bench(size=10_000, most_bytes=50_000, max_rate=max_rate)
    async with bench.life():
        await passes(bench, 130, 10)
    assert warnings(caplog) == []


async def test_it_is_known_before_a_minute_is_over(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(size=100_000, most_bytes=500_000, max_rate="64KiB", max_size="64MiB")
    async with bench.life():
        await passes(bench, 10, 10)
        assert len(warnings(caplog)) == 1
