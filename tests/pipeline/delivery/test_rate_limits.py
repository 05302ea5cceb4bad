"""Tests of retry delays, message sizes, rate limits, and the warning about `max_rate`."""

import logging
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.value_types import Duration
from pipeline.delivery.contract import Acked
from pipeline.delivery.options import RetryOptions
from pipeline.delivery.rate_limits import MessageSizeLimit, RateLimiter, RetryBackoff
from pipeline.model import NS
from tests.pipeline.delivery.refusing import refuses, warnings
from tests.pipeline.delivery.support import Bench, virtual


def backoff(initial: str = "1s", longest: str = "30s", seed: int = 1) -> RetryBackoff:
    options = RetryOptions(initial=Duration.parse(initial), max=Duration.parse(longest))
    return RetryBackoff(options, random.Random(seed))


def test_each_delay_is_twice_the_previous_one_up_to_the_maximum() -> None:
    delays = backoff()
    for expected in (1, 2, 4, 8, 16, 30, 30, 30):
        assert expected * 0.75 <= delays.next_delay() <= expected
    delays.reset()
    assert delays.next_delay() <= 1


def test_random_delays_keep_nodes_from_retrying_at_the_same_time() -> None:
    assert len({backoff(seed=seed).next_delay() for seed in range(20)}) == 20
    # Also if the receiver requests the same delay from all of them.
    assert len({backoff(seed=seed).next_delay(5.0) for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [
        (None, 0.75, 1),
        (0.0, 0.75, 1),
        (-5.0, 0.75, 1),
        (math.nan, 0.75, 1),
        (5.0, 5, 6.25),
        (29.0, 29, 30),
        (30.0, 30, 30),
        (1e9, 30, 30),
        (math.inf, 30, 30),
    ],
)
def test_o1_the_receivers_delay_is_the_minimum_up_to_the_longest_delay(
    after: float | None, least: float, most: float
) -> None:
    for seed in range(20):
        assert least <= backoff(seed=seed).next_delay(after) <= most


def test_an_initial_delay_over_the_maximum_is_limited() -> None:
    assert backoff("10m", "2s").next_delay() <= 2


@example(5, [(0, 59), (744, 1)])
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 3_000)), max_size=50),
)
def test_the_rate_limit_is_kept_for_any_sequence_of_messages(
    rate: int, messages: list[tuple[int, int]]
) -> None:
    """After the delays, at most the rate plus one burst and one message was sent."""
    limiter, now_ns, sent, last = RateLimiter(rate), 0, 0, 0
    for after_ms, size in messages:
        now_ns += after_ms * NS // 1000
        now_ns += math.ceil(limiter.delay(now_ns) * NS)
        assert limiter.delay(now_ns) < 1e-6
        assert sent - last <= rate * (now_ns / NS + 1) + 1e-3
        limiter.spend(size)
        sent, last = sent + size, size


def test_a_rate_of_zero_means_no_delay() -> None:
    limiter = RateLimiter(0)
    for _ in range(10):
        limiter.spend(1 << 40)
        assert limiter.delay(0) == 0


def test_the_message_size_limit_falls_immediately_and_grows_slowly() -> None:
    limit = MessageSizeLimit(1000)
    limit.reduce(400)
    limit.on_accepted(100)  # a small message shows nothing
    assert limit.bytes == 400
    limit.on_accepted(400)
    assert 400 < limit.bytes <= 410
    for _ in range(1000):
        limit.on_accepted(limit.bytes)
    assert limit.bytes == 1000
    limit.reduce(2000)
    assert limit.bytes == 1000
    limit.reduce(0)
    assert limit.bytes == 1


@given(st.integers(1, 1 << 40), st.lists(st.integers(1, 1 << 40), min_size=1, max_size=20))
def test_a_delay_is_never_shorter_than_a_millisecond(rate: int, sizes: list[int]) -> None:
    """Otherwise a loop that waits for the remaining delay might never end."""
    limiter, now = RateLimiter(rate), 1_000 * NS
    for size in sizes:
        limiter.spend(size)
        for _ in range(3):
            seconds = limiter.delay(now)
            if not seconds:
                break
            assert seconds >= 0.001
            now += round(seconds * NS)
        assert limiter.delay(now) == 0


async def produce(bench: Bench, seconds: int, each: int) -> None:
    """Put `each` records per second into the inbox."""
    for _ in range(seconds):
        bench.give(*[1] * each)
        await bench.wait(1)


@virtual
async def test_r8_the_production_rate_is_a_metric(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(size=100, max_rate="1KiB")
    async with bench.life():
        await produce(bench, 59, 5)
        assert bench.value("produced_bytes_per_second") == 0, "it is known after a minute"
        await produce(bench, 3, 5)
        assert bench.value("produced_bytes_per_second") == pytest.approx(500, rel=0.05)
    assert warnings(caplog) == []


@pytest.mark.slow
@virtual
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
        messages = [r.getMessage() for r in caplog.records if "no longer produces" in r.msg]
        assert len(messages) == 1
        assert bench.value("queued") < 20


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("max_rate", ["0B", "4MiB"])
async def test_a_production_rate_below_max_rate_causes_no_warning(
    caplog: pytest.LogCaptureFixture, max_rate: str
) -> None:
    bench = Bench(size=10_000, most_bytes=50_000, max_rate=max_rate)
    async with bench.life():
        await produce(bench, 130, 10)
    assert warnings(caplog) == []


@virtual
async def test_a_large_excess_is_logged_in_less_than_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(size=100_000, most_bytes=500_000, max_rate="64KiB", max_size="64MiB")
    async with bench.life():
        await produce(bench, 10, 10)
        assert len(warnings(caplog)) == 1
