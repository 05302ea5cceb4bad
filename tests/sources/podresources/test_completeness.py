"""When a list counts as complete; times are plain numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import PartialRef
from sources.podresources.completeness import ListCompleteness

S = 1_000_000_000
WARM_UP = 300 * S


def refs(names: str) -> list[PartialRef]:
    return [PartialRef("ml", name, "main") for name in names]


@pytest.fixture
def completeness() -> ListCompleteness:
    return ListCompleteness(WARM_UP)


@pytest.fixture
def warmed_up(completeness: ListCompleteness) -> ListCompleteness:
    """Return one that has a list of a and b, from a kubelet that has run for a long time."""
    completeness.socket_changed(0, 1000 * S)
    assert completeness.record_list(0, refs("ab"))
    return completeness


@pytest.mark.parametrize(
    ("age", "at", "is_complete"),
    [
        (300, 0, True),
        (86400, 0, True),
        (299, 0, False),
        (299, 1, True),
        (0, 299, False),
        (0, 300, True),
        # The wall clock was set back after the socket was created.
        (-1000, 299, False),
        (-1000, 300, True),
    ],
)
def test_at_the_start_a_list_is_complete_if_the_socket_is_old_enough(
    completeness: ListCompleteness, age: int, at: int, is_complete: bool
) -> None:
    completeness.socket_changed(0, age * S)
    assert completeness.record_list(at * S, refs("ab")) is is_complete
    assert completeness.record_list(at * S, refs("abc")) is is_complete


@pytest.mark.parametrize(
    ("lists", "is_complete"),
    [
        (["ab"], [True]),
        (["abc"], [True]),
        (["", "a", "ab"], [False, False, True]),
        (["a", "b"], [False, True]),  # a ended after the kubelet had listed it again
        (["a", "a", "ac"], [False, False, False]),
        (["ab", "", "c"], [True, True, True]),
    ],
)
def test_after_a_restart_a_list_is_complete_once_all_earlier_pods_were_listed(
    warmed_up: ListCompleteness, lists: list[str], is_complete: list[bool]
) -> None:
    warmed_up.socket_changed(10 * S)
    assert [
        warmed_up.record_list((11 + at) * S, refs(names)) for at, names in enumerate(lists)
    ] == is_complete


def test_after_the_warm_up_missing_pods_count_as_ended(warmed_up: ListCompleteness) -> None:
    warmed_up.socket_changed(10 * S)
    assert not warmed_up.record_list(309 * S, refs("a"))
    assert warmed_up.record_list(310 * S, refs("a"))
    # Since then no pod is missing.
    warmed_up.socket_changed(400 * S)
    assert warmed_up.record_list(401 * S, refs("a"))


def test_after_an_empty_list_the_next_list_is_complete(warmed_up: ListCompleteness) -> None:
    assert warmed_up.record_list(5 * S, ())
    warmed_up.socket_changed(10 * S)
    assert warmed_up.record_list(11 * S, refs("a"))


def test_a_second_restart_does_not_forget_missing_pods(warmed_up: ListCompleteness) -> None:
    warmed_up.socket_changed(10 * S)
    assert not warmed_up.record_list(11 * S, refs("a"))
    warmed_up.socket_changed(20 * S)
    assert not warmed_up.record_list(21 * S, refs("a"))
    assert not warmed_up.record_list(319 * S, refs("a"))
    assert warmed_up.record_list(320 * S, refs("ab"))


def test_incomplete_lists_do_not_make_later_lists_complete(completeness: ListCompleteness) -> None:
    """Both kubelets may have started while the API server was unavailable."""
    completeness.socket_changed(0, 20 * S)
    assert not completeness.record_list(1 * S, refs("a"))
    completeness.socket_changed(10 * S)
    assert not completeness.record_list(11 * S, refs("a"))
    assert completeness.record_list(310 * S, refs("a"))


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.booleans(), st.sets(st.sampled_from("abcd"))), max_size=20
    )
)
def test_a_list_is_incomplete_while_an_earlier_pod_may_be_missing(
    steps: list[tuple[int, bool, set[str]]],
) -> None:
    completeness = ListCompleteness(WARM_UP)
    completeness.socket_changed(0, 1000 * S)
    assert completeness.record_list(0, ())
    now, since = 0, -1000
    last: set[str] = set()
    missing: set[str] = set()
    for seconds, restarted, names in steps:
        now += seconds
        if restarted:
            completeness.socket_changed(now * S)
            since, missing = now, missing | last
        missing = set() if now >= since + 300 else missing - names
        assert completeness.record_list(now * S, refs("".join(names))) is not bool(missing)
        last = names
