"""Implausible readings of energy and busy time do not change an account."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.usage.interval_split import split_busy
from pipeline.usage.monotonic_counter import energy_rate
from tests.pipeline.usage.samples import MS, Book, S, by_pod, container, holder, name, process
from tests.pipeline.usage.test_energy import ONE, THREE, mig_book, sample_all

LIFE = 10**12
WATTS = 300


def readings_with(*wrong: int | None, watts: int = WATTS, after: int = 3) -> list[int | None]:
    """Return the energy counter of each second: wrong readings between right ones."""
    length = len(wrong) + after
    right = [LIFE + 1000 * watts * second for second in range(length + 1)]
    return [right[0], right[1], *wrong, *right[len(wrong) + 2 :]]


STORIES = {
    "zero": readings_with(0, 0, 0),
    "truncated": readings_with(808_334_905, 808_334_905, 808_334_905),
    "too high": readings_with(5 * LIFE, 7 * LIFE),
    "missing": readings_with(None, None, None),
    "various": readings_with(0, 5 * LIFE, None, 808_334_905, LIFE - 1),
    "zero for minutes": readings_with(*[0] * 600),
}


@pytest.mark.parametrize("readings", STORIES.values(), ids=STORIES.keys())
def test_t5_a_wrong_reading_of_the_energy_counter_adds_and_loses_no_energy(
    readings: list[int | None],
) -> None:
    book = Book()
    book.hold(0, holder("a"))
    for second, reading in enumerate(readings):
        since = second - 1 if second else None
        book.sample(second, since, process("a", busy=S // 2), busy=S // 2, energy=reading)
    seconds = len(readings) - 1
    assert book.account().energy_mj == 1000 * WATTS * seconds
    assert by_pod(book.account().containers, "energy_mj") == {"a": 1000 * WATTS * seconds}


def test_t5_energy_after_wrong_readings_is_split_by_the_busy_time_of_the_whole_time() -> None:
    book = Book()
    book.sample(0, None, energy=LIFE)
    book.sample(5, 0, process("a", busy=4 * S), busy=4 * S, energy=0)
    assert container(book.account(), "a").energy_mj is None, "unknown, not 0"
    book.sample(10, 5, process("b", busy=S), busy=S, energy=LIFE + 5000)
    assert by_pod(book.account().containers, "energy_mj") == {"a": 4000, "b": 1000}


def test_t5_a_holding_that_ends_while_the_counter_is_wrong_gets_its_energy() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, energy=LIFE)
    book.sample(5, 0, process("a", busy=4 * S), busy=4 * S, energy=0)
    book.hold(6, holder("b"))
    book.sample(10, 5, process("b", busy=S), busy=S, energy=LIFE + 5000)
    (ended,) = book.usage().ended
    assert (ended.subject.pod, ended.energy_mj) == ("a", 4000)


def test_t5_energy_across_a_break_is_not_counted_after_wrong_readings_either() -> None:
    book = Book()
    book.sample(0, None, energy=LIFE)
    book.sample(5, 0, energy=0)
    book.sample(10, None, energy=LIFE + 5000)
    assert book.sample(15, 10, energy=LIFE + 6000).energy_mj == 1000


def test_t5_a_counter_that_was_reset_counts_again_after_a_minute() -> None:
    book = Book()
    book.sample(0, None, energy=LIFE)
    for step in range(14):
        book.sample(5 * step + 5, 5 * step, energy=3 + 1000 * step)
    assert book.account().energy_mj == 13_000


def test_t5_instances_get_their_energy_when_the_counter_of_the_gpu_is_right_again() -> None:
    book = mig_book()
    sample_all(book, 0, None, LIFE, None, None)
    assert sample_all(book, 10, 0, 0, 9 * S, 0) == [None, None, None]
    assert sample_all(book, 20, 10, LIFE + 6000, 0, S) == [4500, 1500, 0]
    assert by_pod(book.account(ONE).containers, "energy_mj") == {"a": 4500}
    assert by_pod(book.account(THREE).containers, "energy_mj") == {"b": 1500}


WRONG = st.one_of(st.none(), st.integers(0, LIFE - 1), st.integers(2 * LIFE, 1 << 62))


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 724)), min_size=1, max_size=30),
    st.dictionaries(st.integers(1, 29), WRONG),
    st.integers(0, 1 << 30),
)
def test_t5_wrong_readings_at_random_times_never_change_the_account(
    story: Sequence[tuple[int, int]], wrong: dict[int, int | None], seed: int
) -> None:
    chance = Random(seed)
    right, other = Book(), Book()
    at, counter, wrong_for = 0, LIFE, 0
    for step, (seconds, watts) in enumerate([(0, 0), *story, (1, 0)]):
        since, at = at if step else None, at + seconds
        counter += 1000 * watts * seconds
        processes = [process(pod, busy=chance.randint(0, seconds * S // 2)) for pod in "ab"]
        total = sum(one.busy_ns or 0 for one in processes)
        is_wrong = step in wrong and step <= len(story) and wrong_for + seconds < 60
        wrong_for = wrong_for + seconds if is_wrong else 0
        readings_with = wrong[step] if is_wrong else counter
        for book, energy in ((right, counter), (other, readings_with)):
            book.add(at, since, *processes, busy=total, energy=energy)
    assert right.account().energy_mj == other.account().energy_mj == counter - LIFE
    for account in (right.account(), other.account()):
        assert (account.energy_mj or 0) <= energy_rate(None) * (at + len(story))
    assert by_pod(right.account().containers, "busy_ns") == by_pod(
        other.account().containers, "busy_ns"
    )


# -- Busy time


@pytest.mark.parametrize(
    ("claimed", "seconds", "expected", "no_one"),
    [
        ({"a": 9.5, "b": 9.5}, 9.65, {"a": 4.825, "b": 4.825}, 0),
        ({"a": 9.65, "b": 9.65}, 9.65, {"a": 4.825, "b": 4.825}, 0),
        ({"a": 12}, 10, {"a": 10}, 0),
        # Processes outside of containers are scaled down too.
        ({"a": 10, None: 10}, 10, {"a": 5}, 5),
        ({"a": 3, "b": 4}, 10, {"a": 3, "b": 4}, 0),
    ],
)
def test_t6_busy_time_of_all_processes_is_scaled_to_the_length_of_the_interval(
    *, claimed: dict[str | None, float], seconds: float, expected: dict[str, float], no_one: float
) -> None:
    book = Book()
    book.sample(0, None)
    processes = [process(pod, busy=round(busy_s * S)) for pod, busy_s in claimed.items()]
    account = book.sample(seconds, 0, *processes, busy=sum(one.busy_ns or 0 for one in processes))
    assert by_pod(account.containers, "busy_ns") == {p: round(s * S) for p, s in expected.items()}
    assert account.busy_unattributed_ns == round(no_one * S)
    assert account.busy_ns is not None
    assert account.busy_ns <= account.elapsed_ns


def test_t6_busy_time_of_a_mig_instance_is_limited_to_the_interval_too() -> None:
    book = mig_book()
    sample_all(book, 0, None, 0, None, None)
    sample_all(book, 10, 0, 0, 11 * S, 0)
    assert book.account(ONE).busy_ns == 10 * S


BUSY = st.integers(0, 1 << 40)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), BUSY), max_size=6),
    st.integers(0, 1 << 40),
)
def test_t6_parts_of_busy_time_sum_to_the_total_and_none_exceeds_what_was_reported(
    claimed: list[tuple[str | None, int]], total: int
) -> None:
    found = split_busy(total, [process(pod, busy=ns) for pod, ns in claimed], None)
    assert sum(found.containers.values()) + found.unattributed == total
    for pod in ("a", "b"):
        own = sum(ns for owner, ns in claimed if owner == pod)
        assert 0 <= found.containers.get(name(pod), 0) <= own


@given(st.lists(st.tuples(BUSY, BUSY, st.integers(1, 10_000)), min_size=1, max_size=20))
def test_t6_busy_time_never_exceeds_elapsed_time(
    story: list[tuple[int, int, int]],
) -> None:
    book, at = Book(), 0
    book.sample(0, None)
    for one, other, milliseconds in story:
        since, at = at, at + milliseconds
        processes = [process("a", busy=one), process("b", busy=other)]
        account = book.sample(at / 1000, since / 1000, *processes, busy=one + other)
        assert account.busy_ns is not None
        assert account.busy_ns <= account.elapsed_ns == at * MS
        assert all((each.busy_ns or 0) <= at * MS for each in account.containers)
