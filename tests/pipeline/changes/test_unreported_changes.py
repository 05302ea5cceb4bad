"""Each ended holding and each XID error is reported once to each sink."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipeline.changes.descriptions import error_id
from pipeline.changes.unreported_changes import ChangeTracker, UnreportedChanges
from pipeline.model import Holding, Snapshot, XidError
from tests.support.nodes import Node, at, gpu, mig
from tests.support.usage import holding, usage, victim, xid_error

NODE = Node()
NODE.has(gpu(0))
PLAIN = NODE.snapshot()


def ended_holdings(*serials: int) -> tuple[Holding, ...]:
    return tuple(holding(f"p{one}", gpu(0), end=at(one), serial=one) for one in serials)


def xid_errors(*serials: int, revision: int = 0) -> tuple[XidError, ...]:
    return tuple(xid_error(gpu(0), 79, serial=one, revision=revision) for one in serials)


def snapshot_of(holdings: Sequence[Holding] = (), errors: Sequence[XidError] = ()) -> Snapshot:
    return replace(PLAIN, usage=usage(ended=holdings), xids=tuple(errors))


def serials(changes: UnreportedChanges) -> tuple[list[int], list[tuple[int, bool]]]:
    return (
        [one.serial for one in changes.holdings],
        [(one.error.serial, one.is_update) for one in changes.errors],
    )


def test_a_sink_that_runs_from_the_start_gets_all_changes() -> None:
    tracker = ChangeTracker({}, None)
    assert tracker.update(PLAIN) == UnreportedChanges()
    changes = tracker.update(snapshot_of(ended_holdings(1, 2), xid_errors(1)))
    assert serials(changes) == ([1, 2], [(1, False)])
    assert changes.missed_holdings == changes.missed_errors == 0
    assert tracker.update(snapshot_of(ended_holdings(1, 2), xid_errors(1))) == UnreportedChanges()


def test_a_sink_that_is_added_later_gets_only_later_changes() -> None:
    tracker = ChangeTracker({}, snapshot_of(ended_holdings(3, 4), xid_errors(2)))
    assert tracker.update(snapshot_of(ended_holdings(3, 4), xid_errors(2))) == UnreportedChanges()
    changes = tracker.update(
        snapshot_of(ended_holdings(4, 5), (*xid_errors(2, revision=1), *xid_errors(3)))
    )
    assert serials(changes) == ([5], [(3, False)]), "an update of an earlier error is not reported"


def test_a_sink_that_is_added_later_has_missed_no_earlier_changes() -> None:
    tracker = ChangeTracker({}, PLAIN)
    changes = tracker.update(snapshot_of(ended_holdings(40), xid_errors(9)))
    assert serials(changes) == ([40], [(9, False)])
    assert changes.missed_holdings == changes.missed_errors == 0


def test_a_reloaded_sink_continues_after_the_last_change() -> None:
    state: dict[str, object] = {}
    ChangeTracker(state, None).update(snapshot_of(ended_holdings(1), xid_errors(1)))
    after = ChangeTracker(state, snapshot_of(ended_holdings(1, 2), xid_errors(1)))
    changes = after.update(
        snapshot_of(ended_holdings(1, 2), (*xid_errors(1, revision=1), *xid_errors(2)))
    )
    assert serials(changes) == ([2], [(1, True), (2, False)])


def test_an_updated_error_is_reported_again() -> None:
    tracker = ChangeTracker({}, None)
    tracker.update(snapshot_of(errors=xid_errors(1)))
    assert serials(tracker.update(snapshot_of(errors=xid_errors(1, revision=1)))) == (
        [],
        [(1, True)],
    )
    assert serials(tracker.update(snapshot_of(errors=xid_errors(1, revision=1)))) == ([], [])


def test_an_error_keeps_its_id_when_its_device_is_corrected() -> None:
    """The kernel's log names a GPU, and the driver then names the MIG instance on it."""
    state: dict[str, object] = {}
    first = xid_error(gpu(0), 79, serial=1)
    [first_change] = ChangeTracker(state, None).update(snapshot_of(errors=[first])).errors
    better = replace(first, device=mig(gpu(0), 7).uuid, revision=1)
    [second_change] = ChangeTracker(state, None).update(snapshot_of(errors=[better])).errors
    assert (first_change.is_update, second_change.is_update) == (False, True)
    assert first_change.id == second_change.id == error_id(first)


def test_an_error_that_was_updated_before_its_first_report_is_reported_once() -> None:
    tracker = ChangeTracker({}, None)
    assert serials(tracker.update(snapshot_of(errors=xid_errors(1, revision=2)))) == (
        [],
        [(1, False)],
    )


def test_changes_that_were_evicted_between_two_snapshots_are_counted() -> None:
    tracker = ChangeTracker({}, None)
    tracker.update(snapshot_of(ended_holdings(1), xid_errors(1)))
    changes = tracker.update(snapshot_of(ended_holdings(5, 6), xid_errors(4, 5)))
    assert serials(changes) == ([5, 6], [(4, False), (5, False)])
    assert (changes.missed_holdings, changes.missed_errors) == (3, 2)


def test_a_snapshot_without_usage_changes_nothing() -> None:
    tracker = ChangeTracker({}, None)
    tracker.update(snapshot_of(ended_holdings(1)))
    assert tracker.update(PLAIN) == UnreportedChanges()
    assert serials(tracker.update(snapshot_of(ended_holdings(1, 2)))) == ([2], [])


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()), max_size=12
)


@given(STEPS)
def test_each_change_is_reported_once_over_any_number_of_reloads(
    steps: Sequence[tuple[int, int, bool, bool]],
) -> None:
    """Steps: number of ended holdings, number of errors, update of an error, reload."""
    state: dict[str, object] = {}
    tracker = ChangeTracker(state, None)
    holdings: list[Holding] = []
    errors: list[XidError] = []
    reported_holdings: list[int] = []
    reported_errors: list[tuple[int, int]] = []
    for more, more_errors, adds, reloads in steps:
        holdings += ended_holdings(*range(len(holdings) + 1, len(holdings) + 1 + more))
        if adds and errors:
            errors[-1] = replace(errors[-1], revision=errors[-1].revision + 1, pid=7)
        errors += [
            xid_error(gpu(0), 13, victim("a", gpu(0)), serial=len(errors) + 1 + one)
            for one in range(more_errors)
        ]
        snapshot = snapshot_of(holdings, errors)
        if reloads:
            tracker = ChangeTracker(state, snapshot)
        changes = tracker.update(snapshot)
        assert changes.missed_holdings == changes.missed_errors == 0
        reported_holdings += [one.serial for one in changes.holdings]
        reported_errors += [(one.error.serial, one.error.revision) for one in changes.errors]
        assert all(
            one.is_update
            == any(
                serial == one.error.serial for serial, _ in reported_errors[: -len(changes.errors)]
            )
            for one in changes.errors
        )
    assert reported_holdings == [one.serial for one in holdings]
    assert len(set(reported_errors)) == len(reported_errors)
    assert {serial for serial, _ in reported_errors} == {one.serial for one in errors}
    assert {(one.serial, one.revision) for one in errors} <= set(reported_errors)
