"""When it is time to write: a table, and what holds for every history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Instant
from sinks.node.write_schedule import SETTLE, WriteSchedule
from tests.support.nodes import at

INTERVAL, REFRESH = 10.0, 300.0


def paced() -> WriteSchedule:
    return WriteSchedule(INTERVAL, REFRESH)


def wrote(pacing: WriteSchedule, when: Instant) -> None:
    pacing.record_patch(when)
    pacing.record_write(when)


def test_without_a_word_there_is_nothing_to_do() -> None:
    assert paced().seconds_left(at(1000)) is None
    assert not paced().pending


@pytest.mark.parametrize(("now", "left"), [(0, 1), (0.4, 0.6), (1, 0), (99, 0)])
def test_a_change_settles_from_its_first_word_on(now: float, left: float) -> None:
    pacing = paced()
    for seconds in (0, 0.2, 0.4):
        pacing.change(at(seconds))
    assert pacing.seconds_left(at(now)) == left


@pytest.mark.parametrize(
    ("changed", "due"),
    [(1, 10), (5, 10), (8.5, 10), (9, 10), (9.5, 10.5), (299.5, 300)],
)
def test_a_change_after_a_patch_keeps_its_distance(changed: float, due: float) -> None:
    pacing = paced()
    wrote(pacing, at(0))
    pacing.change(at(changed))
    assert pacing.seconds_left(at(changed)) == pytest.approx(due - changed)


def test_what_has_changed_back_waits_for_the_refresh_alone() -> None:
    pacing = paced()
    wrote(pacing, at(0))
    pacing.change(at(20))
    pacing.cancel_change()
    assert pacing.seconds_left(at(20)) == 280


def test_a_patch_of_which_no_one_knows_whether_it_was_made_counts() -> None:
    pacing = paced()
    pacing.change(at(0))
    pacing.record_patch(at(1))
    assert pacing.seconds_until_allowed(at(10.5)) == 0.5
    assert pacing.seconds_left(at(1)) == 10
    assert pacing.seconds_until_allowed(at(11)) == 0


@pytest.mark.parametrize(("now", "look"), [(0, False), (299, False), (300, True), (400, True)])
def test_it_looks_at_first_and_once_in_each_refresh(now: float, look: bool) -> None:
    pacing = paced()
    assert pacing.should_read(at(0))
    pacing.record_read(at(0))
    assert pacing.should_read(at(now)) is look


def test_what_is_forgotten_restarts_and_keeps_its_distance() -> None:
    pacing = paced()
    pacing.record_read(at(0))
    wrote(pacing, at(0))
    pacing.reset()
    assert pacing.seconds_left(at(1)) is None
    assert pacing.should_read(at(1))
    pacing.change(at(1))
    assert pacing.seconds_left(at(1)) == 9


STEPS = st.lists(
    st.tuples(st.floats(0, 400), st.sampled_from(["change", "settle", "nothing"])), max_size=60
)


@given(STEPS)
def test_whatever_changes_is_written_in_time_and_never_too_often(
    steps: list[tuple[float, str]],
) -> None:
    pacing, now, patches = paced(), 0.0, [0.0]
    wrote(pacing, at(0))
    waiting: float | None = None

    def until(end: float) -> None:
        """Let the time pass, writing whenever it is time for that."""
        nonlocal now, waiting
        while (left := pacing.seconds_left(at(now))) is not None and now + left <= end:
            now += left
            assert now - patches[-1] == pytest.approx(INTERVAL) or now - patches[-1] > INTERVAL
            assert now - patches[-1] <= REFRESH + 1e-6
            if waiting is not None:
                assert now <= max(waiting + SETTLE, patches[-1] + INTERVAL) + 1e-6
            patches.append(now)
            wrote(pacing, at(now))
            waiting = None
        now = end

    for rest, step in steps:
        until(now + rest)
        if step == "change":
            pacing.change(at(now))
            waiting = now if waiting is None else waiting
        elif step == "settle":
            pacing.cancel_change()
            waiting = None
    until(now + 2 * REFRESH)
    assert waiting is None
