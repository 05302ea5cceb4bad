"""Each thing that happens is told of once, whoever asks when."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipeline.changes.change_feed import NOTHING, Changes, ChangeTracker
from pipeline.changes.descriptions import error_id
from pipeline.model import Holding, Snapshot, XidError
from tests.support.nodes import Node, at, gpu, mig
from tests.support.usage import holding, usage, victim, xid_error

NODE = Node()
NODE.has(gpu(0))
PLAIN = NODE.snapshot()


def ended(*serials: int) -> tuple[Holding, ...]:
    return tuple(holding(f"p{one}", gpu(0), end=at(one), serial=one) for one in serials)


def struck(*serials: int, revision: int = 0) -> tuple[XidError, ...]:
    return tuple(xid_error(gpu(0), 79, serial=one, revision=revision) for one in serials)


def shown(holdings: Sequence[Holding] = (), errors: Sequence[XidError] = ()) -> Snapshot:
    return replace(PLAIN, usage=usage(ended=holdings), xids=tuple(errors))


def serials(news: Changes) -> tuple[list[int], list[tuple[int, bool]]]:
    return (
        [one.serial for one in news.holdings],
        [(one.error.serial, one.is_update) for one in news.errors],
    )


def test_a_sink_that_was_there_from_the_start_is_reported_of_all() -> None:
    following = ChangeTracker({}, None)
    assert following.update(PLAIN) == NOTHING
    news = following.update(shown(ended(1, 2), struck(1)))
    assert serials(news) == ([1, 2], [(1, False)])
    assert news.missed_holdings == news.missed_errors == 0
    assert following.update(shown(ended(1, 2), struck(1))) == NOTHING


def test_a_sink_that_comes_later_is_reported_of_what_comes_then() -> None:
    following = ChangeTracker({}, shown(ended(3, 4), struck(2)))
    assert following.update(shown(ended(3, 4), struck(2))) == NOTHING
    news = following.update(shown(ended(4, 5), (*struck(2, revision=1), *struck(3))))
    assert serials(news) == ([5], [(3, False)]), "what was added to an earlier error isn't told"


def test_a_sink_that_comes_when_nothing_is_kept_any_more_misses_nothing_by_that() -> None:
    following = ChangeTracker({}, PLAIN)
    news = following.update(shown(ended(40), struck(9)))
    assert serials(news) == ([40], [(9, False)])
    assert news.missed_holdings == news.missed_errors == 0


def test_a_reload_continues_where_it_was() -> None:
    kept: dict[str, object] = {}
    ChangeTracker(kept, None).update(shown(ended(1), struck(1)))
    after = ChangeTracker(kept, shown(ended(1, 2), struck(1)))
    news = after.update(shown(ended(1, 2), (*struck(1, revision=1), *struck(2))))
    assert serials(news) == ([2], [(1, True), (2, False)])


def test_what_is_added_to_an_error_is_reported_once_more() -> None:
    following = ChangeTracker({}, None)
    following.update(shown(errors=struck(1)))
    assert serials(following.update(shown(errors=struck(1, revision=1)))) == ([], [(1, True)])
    assert serials(following.update(shown(errors=struck(1, revision=1)))) == ([], [])


def test_an_error_keeps_its_name_though_its_place_becomes_known_better() -> None:
    """The kernel's log names a GPU, and the driver a moment later the instance on it."""
    kept: dict[str, object] = {}
    first = xid_error(gpu(0), 79, serial=1)
    [given_out] = ChangeTracker(kept, None).update(shown(errors=[first])).errors
    better = replace(first, device=mig(gpu(0), 7).uuid, revision=1)
    [again] = ChangeTracker(kept, None).update(shown(errors=[better])).errors
    assert (given_out.is_update, again.is_update) == (False, True)
    assert given_out.id == again.id == error_id(first)


def test_an_error_to_which_something_was_added_before_anybody_looked_is_reported_once() -> None:
    following = ChangeTracker({}, None)
    assert serials(following.update(shown(errors=struck(1, revision=2)))) == ([], [(1, False)])


def test_what_came_and_went_between_two_looks_is_counted() -> None:
    following = ChangeTracker({}, None)
    following.update(shown(ended(1), struck(1)))
    news = following.update(shown(ended(5, 6), struck(4, 5)))
    assert serials(news) == ([5, 6], [(4, False), (5, False)])
    assert (news.missed_holdings, news.missed_errors) == (3, 2)


def test_no_one_reports_of_usage_for_a_while() -> None:
    following = ChangeTracker({}, None)
    following.update(shown(ended(1)))
    assert following.update(PLAIN) == NOTHING
    assert serials(following.update(shown(ended(1, 2)))) == ([2], [])


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()), max_size=12
)


@given(STEPS)
def test_each_is_reported_of_once_over_any_number_of_reloads(
    steps: Sequence[tuple[int, int, bool, bool]],
) -> None:
    """Steps: holdings that end, errors, whether something is added to one, whether it reloads."""
    kept: dict[str, object] = {}
    following = ChangeTracker(kept, None)
    holdings: list[Holding] = []
    errors: list[XidError] = []
    reported_holdings: list[int] = []
    reported_errors: list[tuple[int, int]] = []
    for more, struck_more, adds, reloads in steps:
        holdings += ended(*range(len(holdings) + 1, len(holdings) + 1 + more))
        if adds and errors:
            errors[-1] = replace(errors[-1], revision=errors[-1].revision + 1, pid=7)
        errors += [
            xid_error(gpu(0), 13, victim("a", gpu(0)), serial=len(errors) + 1 + one)
            for one in range(struck_more)
        ]
        snapshot = shown(holdings, errors)
        if reloads:
            following = ChangeTracker(kept, snapshot)
        news = following.update(snapshot)
        assert news.missed_holdings == news.missed_errors == 0
        reported_holdings += [one.serial for one in news.holdings]
        reported_errors += [(one.error.serial, one.error.revision) for one in news.errors]
        assert all(
            one.is_update
            == any(serial == one.error.serial for serial, _ in reported_errors[: -len(news.errors)])
            for one in news.errors
        )
    assert reported_holdings == [one.serial for one in holdings]
    assert len(set(reported_errors)) == len(reported_errors)
    assert {serial for serial, _ in reported_errors} == {one.serial for one in errors}
    assert {(one.serial, one.revision) for one in errors} <= set(reported_errors)
