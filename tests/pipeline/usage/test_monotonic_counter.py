"""Which readings of a counter are plausible, and how much the counter increased."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS
from pipeline.usage.monotonic_counter import (
    CONFIRMED_NS,
    POWER_LIMIT_MW,
    PlausibleCounter,
    energy_rate,
)

LIMIT_MW = 700_000
RATE = energy_rate(LIMIT_MW)
LIFE = 10**12
"""In millijoules: the energy that a GPU uses in some years."""
EVERY = 5


def increases(readings: Sequence[int], *, rate: int = RATE, every: int = EVERY) -> list[int | None]:
    """Return the increase that each reading shows, with readings at equal intervals."""
    one = PlausibleCounter()
    return [one.read(value, at * every * NS, rate) for at, value in enumerate(readings)]


def test_the_highest_plausible_rate_is_one_and_a_half_times_the_power_limit() -> None:
    assert energy_rate(LIMIT_MW) == 1_050_000
    assert energy_rate(None) == POWER_LIMIT_MW * 3 // 2


MOST = RATE * (EVERY + 1)
CASES: dict[str, tuple[list[int], list[int | None]]] = {
    "the first reading is the base": ([LIFE], [None]),
    "increases": ([LIFE, LIFE + 7, LIFE + 7, LIFE + 9], [None, 7, 0, 2]),
    "at the highest plausible rate": ([LIFE, LIFE + MOST], [None, MOST]),
    "above the highest plausible rate": ([LIFE, LIFE + MOST + 1], [None, None]),
    "an H100 draws 724 W, limit 700 W": (
        [LIFE, LIFE + 5 * 724_000],
        [None, 5 * 724_000],
    ),
    "zero, then right": ([LIFE, 0, LIFE + 3_000_000], [None, None, 3_000_000]),
    "truncated, then right": ([LIFE, 808_334_905, LIFE + 9], [None, None, 9]),
    "too high, then right": ([LIFE, 3 * LIFE, LIFE + 9], [None, None, 9]),
    "several wrong readings": (
        [LIFE, 0, 808_334_905, 0, 2 * LIFE, LIFE + 9],
        [None, None, None, None, None, 9],
    ),
    "slightly lower": ([LIFE, LIFE - 1, LIFE + 2], [None, None, 2]),
    "a longer interval allows more": ([LIFE, 0, LIFE + MOST + 1], [None, None, MOST + 1]),
}


@pytest.mark.parametrize(("readings", "expected"), CASES.values(), ids=CASES.keys())
def test_t5_an_implausible_reading_is_unknown_and_the_last_good_one_stays_the_base(
    readings: list[int], expected: list[int | None]
) -> None:
    assert increases(readings) == expected


STEPS = CONFIRMED_NS // NS // EVERY


def test_t5_a_counter_that_was_reset_counts_from_its_first_reading() -> None:
    after = [7 + 1000 * step for step in range(STEPS + 3)]
    found = increases([LIFE - 1, LIFE, *after])
    assert found == [None, 1, *[None] * STEPS, 1000 * STEPS, 1000, 1000]


FRAGMENT = 808_334_905
FIRST: dict[str, tuple[list[int], list[int | None]]] = {
    "zero": ([0, LIFE, LIFE + 7, LIFE + 9], [None, None, 7, 2]),
    "truncated": ([FRAGMENT, LIFE, LIFE + 7, LIFE + 9], [None, None, 7, 2]),
    "truncated three times": ([FRAGMENT] * 3 + [LIFE, LIFE + 7], [None, 0, 0, None, 7]),
    "several": ([0, FRAGMENT, LIFE, LIFE + 7], [None, None, None, 7]),
    "wrong again before an increase": ([0, LIFE, 0, LIFE, LIFE + 7], [None, None, 0, None, 7]),
    "wrong again later": (
        [FRAGMENT, LIFE, LIFE + 7, FRAGMENT, FRAGMENT, LIFE + 9],
        [None, None, 7, None, None, 2],
    ),
    "only the second reading": ([LIFE, 0, LIFE + 7, LIFE + 9], [None, None, 7, 2]),
    "the counter does not change": ([LIFE, 0, LIFE, LIFE, LIFE + 9], [None, None, 0, 0, 9]),
}


@pytest.mark.parametrize(("readings", "expected"), FIRST.values(), ids=FIRST.keys())
def test_t5_a_wrong_first_reading_costs_only_its_own_interval(
    readings: list[int], expected: list[int | None]
) -> None:
    assert increases(readings) == expected


def test_t5_a_counter_that_does_not_change_was_not_reset() -> None:
    stuck = [808_334_905] * (3 * STEPS)
    assert increases([LIFE, *stuck, LIFE + 60]) == [None, *[None] * (3 * STEPS), 60]


def test_t5_readings_that_contradict_each_other_are_no_reset() -> None:
    wild = [step % 2 * 808_334_905 + step for step in range(3 * STEPS)]
    assert increases([LIFE, *wild, LIFE + 60])[1:] == [*[None] * (3 * STEPS), 60]


def test_reset_makes_the_next_reading_the_base() -> None:
    one = PlausibleCounter()
    assert one.read(LIFE, 0, RATE) is None
    one.reset()
    assert one.read(5, 5 * NS, RATE) is None
    assert one.read(9, 10 * NS, RATE) == 4
    assert one.time_ns == 5 * NS


STORIES = st.lists(
    st.tuples(
        st.integers(1, 15),  # seconds
        st.integers(0, 1000),  # watts
        st.one_of(st.none(), st.integers(0, 2 * LIFE), st.sampled_from([0, 808_334_905])),
    ),
    max_size=40,
)


@given(STORIES)
def test_t5_an_increase_never_exceeds_the_highest_plausible_rate(
    story: list[tuple[int, int, int | None]],
) -> None:
    one, at, value, total, good = PlausibleCounter(), 0, LIFE, 0, 0
    one.read(value, 0, RATE)
    for seconds, watts, wrong in story:
        at, value = at + seconds, value + 1000 * watts * seconds
        found = one.read(value if wrong is None else wrong, at * NS, RATE)
        assert found is None or 0 <= found <= RATE * (one.time_ns + NS) // NS
        total, good = total + (found or 0), good + (found is not None)
    assert total <= RATE * (at + good)


@given(STORIES)
def test_t5_after_wrong_readings_the_sum_of_increases_is_exact(
    story: list[tuple[int, int, int | None]],
) -> None:
    one, at, value, total, unknown = PlausibleCounter(), 0, LIFE, 0, 0
    one.read(value - 1, -NS, RATE)
    one.read(value, 0, RATE)
    for seconds, watts, wrong in story:
        at, value = at + seconds, value + 1000 * min(watts, 724) * seconds
        # Only readings that are clearly wrong, for a time too short to count as a reset.
        far = None if wrong is None or abs(wrong - value) < RATE * 1000 else wrong
        far = far if (unknown + seconds) * NS < CONFIRMED_NS else None
        unknown = 0 if far is None else unknown + seconds
        total += one.read(value if far is None else far, at * NS, RATE) or 0
    total += one.read(value, (at + 1) * NS, RATE) or 0
    assert total == value - LIFE
