"""What podgpu and the reference hear at which moment, in stories made by hand."""

from typing import Final

import pytest
from blockbuster import BlockBuster

from tests.accounting.checking import check_story
from tests.accounting.given_out import (
    Act,
    Begun,
    Killed,
    Look,
    Looked,
    Running,
    S,
    Stopped,
    Story,
    Who,
    Work,
)

G0: Final = ("g0",)
ALONE: Final[dict[str, dict[str, float | None]]] = {"a/main/a1": {"g0": None}}


@pytest.fixture(autouse=True)
def _at_once(blockbuster: BlockBuster) -> None:
    blockbuster.deactivate()  # on virtual time, what blocks is called where it is asked for


def given_out(*acts: Act, commit: int = S) -> list[str]:
    """Return what differs in a story of a node with one GPU."""
    return check_story(Story(0, acts, 1_800_000_000 * S, commit))


def look(at: int, since: int | None, heard: int | None = None) -> Looked:
    """Return a look that finds no process, told of at once if not said otherwise."""
    one = Look("g0", at, since, busy=None if since is None else 0, energy=at // S * 1000)
    return Looked(at + 1 if heard is None else heard, (one,))


def test_who_is_not_seen_after_a_start_has_ended_before_a_stop_that_follows_silence() -> None:
    differs = given_out(
        Begun(S, ALONE, {}, G0),
        look(2 * S, None),
        look(7 * S, 2 * S),
        Killed(9 * S),
        Begun(10 * S, {}, {}, G0),
        look(11 * S, None),
        Stopped(80 * S),
        Begun(85 * S, {}, {}, G0),
        look(86 * S, None),
        look(91 * S, 86 * S),
        Stopped(92 * S),
    )
    assert differs == []


@pytest.mark.parametrize("heard", [25 * S, 25 * S + 1, 26 * S])
@pytest.mark.parametrize("between", [(), (24 * S,), (25 * S + S // 2,)])
def test_a_look_reported_of_after_three_intervals_comes_too_late_for_what_has_ended(
    heard: int, between: tuple[int, ...]
) -> None:
    others = [Running(at, "b/main/b1", {"g0": None}) for at in between if at < heard]
    differs = given_out(
        Begun(S, ALONE, {}, G0),
        look(2 * S, None),
        look(7 * S, 2 * S),
        Running(10 * S, "a/main/a1", None),
        *others,
        look(24 * S + S // 2, 7 * S, heard),
        look(30 * S, 24 * S + S // 2),
        Stopped(31 * S),
    )
    assert differs == []


def test_looks_reported_of_together_come_too_late_for_nothing_that_one_of_them_ends() -> None:
    holds: dict[Who, dict[str, float | None]] = {"b/main/b1": {"m2": 0.5}}
    mig = ("m2", "g2")

    def looks(at: int, since: int | None, *works: Work) -> Looked:
        busy = None if since is None else S
        of_slice = Look("m2", at, since, works, busy=busy)
        return Looked(at + S // 4, (of_slice, Look("g2", at, since, energy=at // S * 1000)))

    differs = given_out(
        Begun(S, holds, {}, mig),
        looks(2 * S, None, Work("b/main/b1")),
        looks(7 * S, 2 * S, Work("b/main/b1")),
        Running(10 * S, "b/main/b1", None),
        looks(25 * S, 7 * S),
        looks(30 * S, 25 * S),
        Stopped(31 * S),
    )
    assert differs == []


@pytest.mark.parametrize("there", [True, False])
def test_who_comes_back_between_a_look_and_its_reporting_is_there_as_the_look_says(
    there: bool,
) -> None:
    works = (Work("a/main/a1", S),)
    differs = given_out(
        Begun(S, ALONE, {}, G0),
        look(2 * S, None),
        Looked(7 * S + 1, (Look("g0", 7 * S, 2 * S, works, busy=S, energy=7000),)),
        Running(9 * S, "a/main/a1", None),
        Running(12 * S + S // 2, "a/main/a1", {"g0": 0.5}),
        Looked(
            13 * S,
            (Look("g0", 12 * S, 7 * S, works if there else (), busy=S * there, energy=12000),),
        ),
        look(17 * S, 12 * S),
        Stopped(18 * S),
    )
    assert differs == []


def test_what_came_and_went_before_a_look_is_apart_from_what_came_before_its_reporting() -> None:
    gone = (Work("a/main/a1", S, None, there=False),)
    differs = given_out(
        Begun(S, {"a/main/a1": {}}, {}, G0),
        look(2 * S, None),
        Running(9 * S, "a/main/a1", None),
        Running(12 * S + S // 2, "a/main/a1", {"g0": 0.5}),
        Looked(13 * S, (Look("g0", 12 * S, 2 * S, gone, busy=S, energy=12000),)),
        look(17 * S, 12 * S),
        Stopped(18 * S),
    )
    assert differs == []
