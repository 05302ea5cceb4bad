"""When a list names all that hold something; no clock but numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import PartialRef
from sources.podresources.completeness import ListCompleteness

S = 1_000_000_000
PATIENCE = 300 * S


def refs(names: str) -> list[PartialRef]:
    return [PartialRef("ml", name, "main") for name in names]


@pytest.fixture
def roll() -> ListCompleteness:
    return ListCompleteness(PATIENCE)


@pytest.fixture
def known(roll: ListCompleteness) -> ListCompleteness:
    """One by which a and b were listed, by a kubelet that has run for long."""
    roll.socket_changed(0, 1000 * S)
    assert roll.record_list(0, refs("ab"))
    return roll


@pytest.mark.parametrize(
    ("age", "at", "whole"),
    [
        (300, 0, True),
        (86400, 0, True),
        (299, 0, False),
        (299, 1, True),
        (0, 299, False),
        (0, 300, True),
        # The wall clock was set back since.
        (-1000, 299, False),
        (-1000, 300, True),
    ],
)
def test_of_a_kubelet_found_at_the_start_the_socket_s_age_counts(
    roll: ListCompleteness, age: int, at: int, whole: bool
) -> None:
    roll.socket_changed(0, age * S)
    assert roll.record_list(at * S, refs("ab")) is whole
    assert roll.record_list(at * S, refs("abc")) is whole


@pytest.mark.parametrize(
    ("lists", "whole"),
    [
        (["ab"], [True]),
        (["abc"], [True]),
        (["", "a", "ab"], [False, False, True]),
        (["a", "b"], [False, True]),  # a has gone once the kubelet knew of it
        (["a", "a", "ac"], [False, False, False]),
        (["ab", "", "c"], [True, True, True]),
    ],
)
def test_after_a_restart_all_of_before_are_waited_for(
    known: ListCompleteness, lists: list[str], whole: list[bool]
) -> None:
    known.socket_changed(10 * S)
    assert [
        known.record_list((11 + at) * S, refs(given_out)) for at, given_out in enumerate(lists)
    ] == whole


def test_who_is_missing_for_too_long_is_gone(known: ListCompleteness) -> None:
    known.socket_changed(10 * S)
    assert not known.record_list(309 * S, refs("a"))
    assert known.record_list(310 * S, refs("a"))
    # From now on nobody is missing any more.
    known.socket_changed(400 * S)
    assert known.record_list(401 * S, refs("a"))


def test_where_no_one_held_anything_no_one_is_waited_for(known: ListCompleteness) -> None:
    assert known.record_list(5 * S, ())
    known.socket_changed(10 * S)
    assert known.record_list(11 * S, refs("a"))


def test_a_second_restart_forgets_no_one(known: ListCompleteness) -> None:
    known.socket_changed(10 * S)
    assert not known.record_list(11 * S, refs("a"))
    known.socket_changed(20 * S)
    assert not known.record_list(21 * S, refs("a"))
    assert not known.record_list(319 * S, refs("a"))
    assert known.record_list(320 * S, refs("ab"))


def test_lists_of_a_young_kubelet_are_no_measure_for_the_next(roll: ListCompleteness) -> None:
    """Both may have started while the API server was away."""
    roll.socket_changed(0, 20 * S)
    assert not roll.record_list(1 * S, refs("a"))
    roll.socket_changed(10 * S)
    assert not roll.record_list(11 * S, refs("a"))
    assert roll.record_list(310 * S, refs("a"))


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.booleans(), st.sets(st.sampled_from("abcd"))), max_size=20
    )
)
def test_never_whole_while_one_of_before_may_still_be_unknown(
    steps: list[tuple[int, bool, set[str]]],
) -> None:
    roll = ListCompleteness(PATIENCE)
    roll.socket_changed(0, 1000 * S)
    assert roll.record_list(0, ())
    now, since = 0, -1000
    last: set[str] = set()
    owed: set[str] = set()
    for seconds, restarted, names in steps:
        now += seconds
        if restarted:
            roll.socket_changed(now * S)
            since, owed = now, owed | last
        owed = set() if now >= since + 300 else owed - names
        assert roll.record_list(now * S, refs("".join(names))) is not bool(owed)
        last = names
