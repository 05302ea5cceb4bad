"""Stories by hand: when podgpu and the reference get a report, and what it changes."""

from typing import Final

import pytest
from blockbuster import BlockBuster

from tests.accounting.actions import (
    Action,
    ContainerChanged,
    ContainerName,
    Killed,
    Process,
    S,
    Sample,
    SamplesReported,
    Started,
    Stopped,
    Story,
)
from tests.accounting.checking import check_story

G0: Final = ("g0",)
ONE_HOLDER: Final[dict[str, dict[str, float | None]]] = {"a/main/a1": {"g0": None}}


@pytest.fixture(autouse=True)
def _allow_blocking_calls(blockbuster: BlockBuster) -> None:
    blockbuster.deactivate()  # on virtual time, blocking calls run in the event loop's thread


def differences_of(*actions: Action, commit: int = S) -> list[str]:
    """Return the differences of a story of a node with one GPU."""
    return check_story(Story(0, actions, 1_800_000_000 * S, commit))


def sample(at: int, since: int | None, reported_at: int | None = None) -> SamplesReported:
    """Return a sample without processes; reported immediately, or at `reported_at`."""
    one = Sample("g0", at, since, busy=None if since is None else 0, energy=at // S * 1000)
    return SamplesReported(at + 1 if reported_at is None else reported_at, (one,))


def test_a_container_not_seen_after_a_restart_ended_before_a_stop_without_samples() -> None:
    differences = differences_of(
        Started(S, ONE_HOLDER, {}, G0),
        sample(2 * S, None),
        sample(7 * S, 2 * S),
        Killed(9 * S),
        Started(10 * S, {}, {}, G0),
        sample(11 * S, None),
        Stopped(80 * S),
        Started(85 * S, {}, {}, G0),
        sample(86 * S, None),
        sample(91 * S, 86 * S),
        Stopped(92 * S),
    )
    assert differences == []


@pytest.mark.parametrize("reported_at", [25 * S, 25 * S + 1, 26 * S])
@pytest.mark.parametrize("between", [(), (24 * S,), (25 * S + S // 2,)])
def test_a_sample_reported_after_three_intervals_does_not_change_an_ended_holding(
    reported_at: int, between: tuple[int, ...]
) -> None:
    others = [ContainerChanged(at, "b/main/b1", {"g0": None}) for at in between if at < reported_at]
    differences = differences_of(
        Started(S, ONE_HOLDER, {}, G0),
        sample(2 * S, None),
        sample(7 * S, 2 * S),
        ContainerChanged(10 * S, "a/main/a1", None),
        *others,
        sample(24 * S + S // 2, 7 * S, reported_at),
        sample(30 * S, 24 * S + S // 2),
        Stopped(31 * S),
    )
    assert differences == []


def test_samples_reported_together_all_count_for_a_holding_that_one_of_them_ends() -> None:
    holds: dict[ContainerName, dict[str, float | None]] = {"b/main/b1": {"m2": 0.5}}
    mig = ("m2", "g2")

    def samples(at: int, since: int | None, *processes: Process) -> SamplesReported:
        busy = None if since is None else S
        of_instance = Sample("m2", at, since, processes, busy=busy)
        return SamplesReported(
            at + S // 4, (of_instance, Sample("g2", at, since, energy=at // S * 1000))
        )

    differences = differences_of(
        Started(S, holds, {}, mig),
        samples(2 * S, None, Process("b/main/b1")),
        samples(7 * S, 2 * S, Process("b/main/b1")),
        ContainerChanged(10 * S, "b/main/b1", None),
        samples(25 * S, 7 * S),
        samples(30 * S, 25 * S),
        Stopped(31 * S),
    )
    assert differences == []


@pytest.mark.parametrize("running", [True, False])
def test_a_container_that_returns_before_a_sample_is_reported_is_as_the_sample_shows(
    running: bool,
) -> None:
    processes = (Process("a/main/a1", S),)
    differences = differences_of(
        Started(S, ONE_HOLDER, {}, G0),
        sample(2 * S, None),
        SamplesReported(7 * S + 1, (Sample("g0", 7 * S, 2 * S, processes, busy=S, energy=7000),)),
        ContainerChanged(9 * S, "a/main/a1", None),
        ContainerChanged(12 * S + S // 2, "a/main/a1", {"g0": 0.5}),
        SamplesReported(
            13 * S,
            (
                Sample(
                    "g0",
                    12 * S,
                    7 * S,
                    processes if running else (),
                    busy=S * running,
                    energy=12000,
                ),
            ),
        ),
        sample(17 * S, 12 * S),
        Stopped(18 * S),
    )
    assert differences == []


def test_processes_that_ended_before_a_sample_are_not_part_of_a_later_holding() -> None:
    ended = (Process("a/main/a1", S, None, running=False),)
    differences = differences_of(
        Started(S, {"a/main/a1": {}}, {}, G0),
        sample(2 * S, None),
        ContainerChanged(9 * S, "a/main/a1", None),
        ContainerChanged(12 * S + S // 2, "a/main/a1", {"g0": 0.5}),
        SamplesReported(13 * S, (Sample("g0", 12 * S, 2 * S, ended, busy=S, energy=12000),)),
        sample(17 * S, 12 * S),
        Stopped(18 * S),
    )
    assert differences == []
