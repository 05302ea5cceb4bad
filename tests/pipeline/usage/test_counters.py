"""What can't be true in a look is no part of an account, and costs no part of it."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.usage.interval_split import split_busy
from pipeline.usage.monotonic_counter import energy_rate
from tests.pipeline.usage.looking import MS, Book, S, by_pod, container, holder, name, process
from tests.pipeline.usage.test_energy import ONE, THREE, look, mig_book

LIFE = 10**12
WATTS = 300


def given_out(*wrong: int | None, watts: int = WATTS, after: int = 3) -> list[int | None]:
    """A look each second at a card with a life behind it, some of them wrong; then right again."""
    length = len(wrong) + after
    right = [LIFE + 1000 * watts * second for second in range(length + 1)]
    return [right[0], right[1], *wrong, *right[len(wrong) + 2 :]]


STORIES = {
    "zeros": given_out(0, 0, 0),
    "cut off": given_out(808_334_905, 808_334_905, 808_334_905),
    "far ahead": given_out(5 * LIFE, 7 * LIFE),
    "not read": given_out(None, None, None),
    "anything": given_out(0, 5 * LIFE, None, 808_334_905, LIFE - 1),
    "minutes of it": given_out(*[0] * 600),
}


@pytest.mark.parametrize("readings", STORIES.values(), ids=STORIES.keys())
def test_t5_a_bad_reading_of_the_energy_counter_bills_no_one_and_loses_nothing(
    readings: list[int | None],
) -> None:
    book = Book()
    book.hold(0, holder("a"))
    for second, reading in enumerate(readings):
        since = second - 1 if second else None
        book.look(second, since, process("a", busy=S // 2), busy=S // 2, energy=reading)
    seconds = len(readings) - 1
    assert book.of().energy_mj == 1000 * WATTS * seconds
    assert by_pod(book.of().containers, "energy_mj") == {"a": 1000 * WATTS * seconds}


def test_t5_what_recovers_is_split_by_the_whole_time_of_which_it_is() -> None:
    book = Book()
    book.look(0, None, energy=LIFE)
    book.look(5, 0, process("a", busy=4 * S), busy=4 * S, energy=0)
    assert container(book.of(), "a").energy_mj is None, "unknown, not 0"
    book.look(10, 5, process("b", busy=S), busy=S, energy=LIFE + 5000)
    assert by_pod(book.of().containers, "energy_mj") == {"a": 4000, "b": 1000}


def test_t5_a_holding_that_ends_while_the_counter_is_wrong_has_its_part() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, energy=LIFE)
    book.look(5, 0, process("a", busy=4 * S), busy=4 * S, energy=0)
    book.hold(6, holder("b"))
    book.look(10, 5, process("b", busy=S), busy=S, energy=LIFE + 5000)
    (ended,) = book.usage().ended
    assert (ended.subject.pod, ended.energy_mj) == ("a", 4000)


def test_t5_what_lies_in_a_break_is_counted_in_nothing_all_the_same() -> None:
    book = Book()
    book.look(0, None, energy=LIFE)
    book.look(5, 0, energy=0)
    book.look(10, None, energy=LIFE + 5000)
    assert book.look(15, 10, energy=LIFE + 6000).energy_mj == 1000


def test_t5_a_counter_that_was_reset_continues_after_a_minute() -> None:
    book = Book()
    book.look(0, None, energy=LIFE)
    for step in range(14):
        book.look(5 * step + 5, 5 * step, energy=3 + 1000 * step)
    assert book.of().energy_mj == 13_000


def test_t5_instances_have_what_they_used_once_the_counter_of_their_gpu_is_right_again() -> None:
    book = mig_book()
    look(book, 0, None, LIFE, None, None)
    assert look(book, 10, 0, 0, 9 * S, 0) == [None, None, None]
    assert look(book, 20, 10, LIFE + 6000, 0, S) == [4500, 1500, 0]
    assert by_pod(book.of(ONE).containers, "energy_mj") == {"a": 4500}
    assert by_pod(book.of(THREE).containers, "energy_mj") == {"b": 1500}


WRONG = st.one_of(st.none(), st.integers(0, LIFE - 1), st.integers(2 * LIFE, 1 << 62))


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 724)), min_size=1, max_size=30),
    st.dictionaries(st.integers(1, 29), WRONG),
    st.integers(0, 1 << 30),
)
def test_t5_wrong_readings_in_a_true_story_never_change_the_account(
    story: Sequence[tuple[int, int]], wrong: dict[int, int | None], seed: int
) -> None:
    chance = Random(seed)
    right, other = Book(), Book()
    at, counter, wrong_for = 0, LIFE, 0
    for step, (seconds, watts) in enumerate([(0, 0), *story, (1, 0)]):
        since, at = at if step else None, at + seconds
        counter += 1000 * watts * seconds
        works = [process(pod, busy=chance.randint(0, seconds * S // 2)) for pod in "ab"]
        total = sum(one.busy_ns or 0 for one in works)
        is_wrong = step in wrong and step <= len(story) and wrong_for + seconds < 60
        wrong_for = wrong_for + seconds if is_wrong else 0
        given_out = wrong[step] if is_wrong else counter
        for book, energy in ((right, counter), (other, given_out)):
            book.take(at, since, *works, busy=total, energy=energy)
    assert right.of().energy_mj == other.of().energy_mj == counter - LIFE
    for account in (right.of(), other.of()):
        assert (account.energy_mj or 0) <= energy_rate(None) * (at + len(story))
    assert by_pod(right.of().containers, "busy_ns") == by_pod(other.of().containers, "busy_ns")


# -- Busy time


@pytest.mark.parametrize(
    ("claimed", "seconds", "expected", "no_one"),
    [
        ({"a": 9.5, "b": 9.5}, 9.65, {"a": 4.825, "b": 4.825}, 0),
        ({"a": 9.65, "b": 9.65}, 9.65, {"a": 4.825, "b": 4.825}, 0),
        ({"a": 12}, 10, {"a": 10}, 0),
        # Who is in no container has its part as well.
        ({"a": 10, None: 10}, 10, {"a": 5}, 5),
        ({"a": 3, "b": 4}, 10, {"a": 3, "b": 4}, 0),
    ],
)
def test_t6_no_one_is_busy_for_longer_than_there_was_time(
    *, claimed: dict[str | None, float], seconds: float, expected: dict[str, float], no_one: float
) -> None:
    book = Book()
    book.look(0, None)
    works = [process(pod, busy=round(busy_s * S)) for pod, busy_s in claimed.items()]
    account = book.look(seconds, 0, *works, busy=sum(one.busy_ns or 0 for one in works))
    assert by_pod(account.containers, "busy_ns") == {p: round(s * S) for p, s in expected.items()}
    assert account.busy_unattributed_ns == round(no_one * S)
    assert account.busy_ns is not None
    assert account.busy_ns <= account.elapsed_ns


def test_t6_an_instance_is_not_busy_for_longer_either() -> None:
    book = mig_book()
    look(book, 0, None, 0, None, None)
    look(book, 10, 0, 0, 11 * S, 0)
    assert book.of(ONE).busy_ns == 10 * S


BUSY = st.integers(0, 1 << 40)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), BUSY), max_size=6),
    st.integers(0, 1 << 40),
)
def test_t6_parts_are_the_whole_and_none_exceeds_what_was_claimed(
    claimed: list[tuple[str | None, int]], total: int
) -> None:
    found = split_busy(total, [process(pod, busy=ns) for pod, ns in claimed], None)
    assert sum(found.containers.values()) + found.unattributed == total
    for pod in ("a", "b"):
        own = sum(ns for whose, ns in claimed if whose == pod)
        assert 0 <= found.containers.get(name(pod), 0) <= own


@given(st.lists(st.tuples(BUSY, BUSY, st.integers(1, 10_000)), min_size=1, max_size=20))
def test_t6_busy_time_never_exceeds_time_whatever_is_reported(
    story: list[tuple[int, int, int]],
) -> None:
    book, at = Book(), 0
    book.look(0, None)
    for one, other, milliseconds in story:
        since, at = at, at + milliseconds
        works = [process("a", busy=one), process("b", busy=other)]
        account = book.look(at / 1000, since / 1000, *works, busy=one + other)
        assert account.busy_ns is not None
        assert account.busy_ns <= account.elapsed_ns == at * MS
        assert all((each.busy_ns or 0) <= at * MS for each in account.containers)
