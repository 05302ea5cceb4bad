"""When the next write is due: a table, and properties of random histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Instant
from sinks.node.write_schedule import SETTLE, WriteSchedule
from tests.support.nodes import at

INTERVAL, REFRESH = 10.0, 300.0


def make_schedule() -> WriteSchedule:
    return WriteSchedule(INTERVAL, REFRESH)


def record_write(schedule: WriteSchedule, when: Instant) -> None:
    schedule.record_patch(when)
    schedule.record_write(when)


def test_without_a_change_no_write_is_due() -> None:
    assert make_schedule().seconds_left(at(1000)) is None
    assert not make_schedule().pending


@pytest.mark.parametrize(("now", "left"), [(0, 1), (0.4, 0.6), (1, 0), (99, 0)])
def test_a_change_is_due_one_second_after_its_first_report(now: float, left: float) -> None:
    schedule = make_schedule()
    for seconds in (0, 0.2, 0.4):
        schedule.change(at(seconds))
    assert schedule.seconds_left(at(now)) == left


@pytest.mark.parametrize(
    ("changed", "due"),
    [(1, 10), (5, 10), (8.5, 10), (9, 10), (9.5, 10.5), (299.5, 300)],
)
def test_a_change_after_a_patch_waits_for_min_interval(changed: float, due: float) -> None:
    schedule = make_schedule()
    record_write(schedule, at(0))
    schedule.change(at(changed))
    assert schedule.seconds_left(at(changed)) == pytest.approx(due - changed)


def test_an_undone_change_waits_only_for_the_refresh() -> None:
    schedule = make_schedule()
    record_write(schedule, at(0))
    schedule.change(at(20))
    schedule.cancel_change()
    assert schedule.seconds_left(at(20)) == 280


def test_a_patch_with_an_unknown_result_counts_for_min_interval() -> None:
    schedule = make_schedule()
    schedule.change(at(0))
    schedule.record_patch(at(1))
    assert schedule.seconds_until_allowed(at(10.5)) == 0.5
    assert schedule.seconds_left(at(1)) == 10
    assert schedule.seconds_until_allowed(at(11)) == 0


@pytest.mark.parametrize(("now", "due"), [(0, False), (299, False), (300, True), (400, True)])
def test_a_read_is_due_at_the_start_and_once_in_each_refresh(now: float, due: bool) -> None:
    schedule = make_schedule()
    assert schedule.should_read(at(0))
    schedule.record_read(at(0))
    assert schedule.should_read(at(now)) is due


def test_after_a_reset_min_interval_still_applies() -> None:
    schedule = make_schedule()
    schedule.record_read(at(0))
    record_write(schedule, at(0))
    schedule.reset()
    assert schedule.seconds_left(at(1)) is None
    assert schedule.should_read(at(1))
    schedule.change(at(1))
    assert schedule.seconds_left(at(1)) == 9


STEPS = st.lists(
    st.tuples(st.floats(0, 400), st.sampled_from(["change", "settle", "nothing"])), max_size=60
)


@given(STEPS)
def test_changes_are_written_in_time_and_never_too_often(
    steps: list[tuple[float, str]],
) -> None:
    schedule, now, patches = make_schedule(), 0.0, [0.0]
    record_write(schedule, at(0))
    waiting: float | None = None

    def until(end: float) -> None:
        """Advance the time, and write whenever a write is due."""
        nonlocal now, waiting
        while (left := schedule.seconds_left(at(now))) is not None and now + left <= end:
            now += left
            assert now - patches[-1] == pytest.approx(INTERVAL) or now - patches[-1] > INTERVAL
            assert now - patches[-1] <= REFRESH + 1e-6
            if waiting is not None:
                assert now <= max(waiting + SETTLE, patches[-1] + INTERVAL) + 1e-6
            patches.append(now)
            record_write(schedule, at(now))
            waiting = None
        now = end

    for rest, step in steps:
        until(now + rest)
        if step == "change":
            schedule.change(at(now))
            waiting = now if waiting is None else waiting
        elif step == "settle":
            schedule.cancel_change()
            waiting = None
    until(now + 2 * REFRESH)
    assert waiting is None
