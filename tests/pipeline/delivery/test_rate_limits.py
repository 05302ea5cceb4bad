"""Waits, sizes and rates, without a loop."""

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.value_types import Duration
from pipeline.delivery.options import RetryOptions
from pipeline.delivery.rate_limits import MessageSizeLimit, RateLimiter, RetryBackoff
from pipeline.model import NS


def waits(initial: str = "1s", longest: str = "30s", seed: int = 1) -> RetryBackoff:
    options = RetryOptions(initial=Duration.parse(initial), max=Duration.parse(longest))
    return RetryBackoff(options, random.Random(seed))


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    own = waits()
    for expected in (1, 2, 4, 8, 16, 30, 30, 30):
        assert expected * 0.75 <= own.next_delay() <= expected
    own.reset()
    assert own.next_delay() <= 1


def test_chance_keeps_nodes_from_coming_in_step() -> None:
    assert len({waits(seed=seed).next_delay() for seed in range(20)}) == 20
    # Also if the receiver tells all of them the same.
    assert len({waits(seed=seed).next_delay(5.0) for seed in range(20)}) == 20


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
def test_o1_the_receiver_s_delay_is_a_floor_that_the_longest_wait_caps(
    after: float | None, least: float, most: float
) -> None:
    for seed in range(20):
        assert least <= waits(seed=seed).next_delay(after) <= most


def test_a_first_wait_longer_than_the_longest() -> None:
    assert waits("10m", "2s").next_delay() <= 2


@example(5, [(0, 59), (744, 1)])
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 3_000)), max_size=50),
)
def test_the_rate_holds_whatever_comes_when(rate: int, coming: list[tuple[int, int]]) -> None:
    """After waiting as told, no more was sent than the rate allows, one burst and one message."""
    pace, now_ns, sent, last = RateLimiter(rate), 0, 0, 0
    for after_ms, size in coming:
        now_ns += after_ms * NS // 1000
        now_ns += math.ceil(pace.delay(now_ns) * NS)
        assert pace.delay(now_ns) < 1e-6
        assert sent - last <= rate * (now_ns / NS + 1) + 1e-3
        pace.spend(size)
        sent, last = sent + size, size


def test_no_rate_is_no_wait() -> None:
    pace = RateLimiter(0)
    for _ in range(10):
        pace.spend(1 << 40)
        assert pace.delay(0) == 0


def test_the_limit_falls_at_once_and_grows_slowly() -> None:
    limit = MessageSizeLimit(1000)
    limit.reduce(400)
    limit.on_accepted(100)  # a small message tells nothing
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
def test_no_wait_is_so_short_that_no_time_goes_by(rate: int, sizes: list[int]) -> None:
    """Else who waits again and again until it is time would never see that it is."""
    pace, now = RateLimiter(rate), 1_000 * NS
    for size in sizes:
        pace.spend(size)
        for _ in range(3):
            seconds = pace.delay(now)
            if not seconds:
                break
            assert seconds >= 0.001
            now += round(seconds * NS)
        assert pace.delay(now) == 0
