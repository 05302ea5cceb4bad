"""Tests of the warning that podgpu produces more data than `max_rate`, in virtual time."""

import logging

import pytest

from pipeline.delivery.contract import Acked
from tests.pipeline.delivery.refusing import refuses, warnings
from tests.pipeline.delivery.support import Bench

pytestmark = pytest.mark.looptime(start=1000)


async def produce(bench: Bench, seconds: int, each: int) -> None:
    """Put `each` records per second into the inbox."""
    for _ in range(seconds):
        bench.give(*[1] * each)
        await bench.wait(1)


async def test_r8_the_production_rate_is_a_metric(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(size=100, max_rate="1KiB")
    async with bench.life():
        await produce(bench, 59, 5)
        assert bench.value("produced_bytes_per_second") == 0, "it is known after a minute"
        await produce(bench, 3, 5)
        assert bench.value("produced_bytes_per_second") == pytest.approx(500, rel=0.05)
    assert warnings(caplog) == []


async def test_r8_podgpu_warns_if_it_produces_more_than_max_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a receiver that accepts all data: the backlog does not shrink."""
    caplog.set_level(logging.INFO, "podgpu")
    bench = Bench(size=10_000, most_bytes=50_000, max_rate="50KiB", max_size="1MiB")
    async with bench.life():
        bench.push.answer = refuses()
        await produce(bench, 3, 10)
        bench.push.answer = lambda _: Acked()
        await produce(bench, 300, 10)
        [warning] = [text for text in warnings(caplog) if "max_rate" in text]
        for part in (
            "produces 100.9 KiB per second",
            "50KiB",
            "the oldest points are dropped",
            "raise queue.max_rate",
        ):
            assert part in warning
        [problem] = bench.ctx.own.problems.values()
        assert "max_rate" in problem.text
        assert bench.value("dropped_total") > 0
        assert bench.imbalance == 0
        await produce(bench, 130, 1)
        messages = [r.getMessage() for r in caplog.records if "less than queue.max_rate" in r.msg]
        assert len(messages) == 1
        assert bench.value("queued") < 20


@pytest.mark.parametrize("max_rate", ["0B", "4MiB"])
async def test_a_production_rate_below_max_rate_causes_no_warning(
    caplog: pytest.LogCaptureFixture, max_rate: str
) -> None:
    bench = Bench(size=10_000, most_bytes=50_000, max_rate=max_rate)
    async with bench.life():
        await produce(bench, 130, 10)
    assert warnings(caplog) == []


async def test_a_large_excess_is_logged_in_less_than_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(size=100_000, most_bytes=500_000, max_rate="64KiB", max_size="64MiB")
    async with bench.life():
        await produce(bench, 10, 10)
        assert len(warnings(caplog)) == 1
