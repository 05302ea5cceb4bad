"""Tests of the clocks: instants of one process agree to the nanosecond."""

import time

import pytest

from pipeline.base.clock import Offset, SystemClock, WallTimes, boot_id
from pipeline.model import NS, Instant


class Clocks:
    """Fake monotonic and wall clocks. Reading one takes `reading_ns`, once plus `stall_ns`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mono_ns, self.ahead_ns, self.reading_ns, self.stall_ns = 10 * NS, 1_800 * NS, 70, 0
        monkeypatch.setattr(time, "monotonic_ns", self._mono)
        monkeypatch.setattr(time, "time_ns", self._wall)

    def _pass(self) -> int:
        self.mono_ns += self.reading_ns + self.stall_ns
        self.stall_ns = 0
        return self.mono_ns

    def _mono(self) -> int:
        return self._pass()

    def _wall(self) -> int:
        return self._pass() + self.ahead_ns


def difference(one: Instant, other: Instant) -> tuple[int, int]:
    return other.mono_ns - one.mono_ns, other.wall_ns - one.wall_ns


def test_two_instants_differ_by_the_same_time_on_both_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, offset = Clocks(monkeypatch), Offset()
    first = offset.now()
    for reading_ns, stall_ns in ((40, 0), (900, 0), (60, 30_000), (60, 5_000_000)):
        clocks.reading_ns, clocks.stall_ns = reading_ns, stall_ns
        mono, wall = difference(first, offset.now())
        assert mono == wall > 0


@pytest.mark.parametrize("step_ns", [NS, -NS, 2_000_000, 12 * 366 * 86_400 * NS])
def test_a_step_of_the_wall_clock_is_in_the_next_instant(
    monkeypatch: pytest.MonkeyPatch, step_ns: int
) -> None:
    clocks, offset = Clocks(monkeypatch), Offset()
    first = offset.now()
    clocks.ahead_ns += step_ns
    mono, wall = difference(first, offset.now())
    assert abs(wall - mono - step_ns) < 1_000


def test_all_clocks_of_a_process_agree() -> None:
    one, other = SystemClock(), SystemClock()
    mono, wall = difference(one.now(), other.now())
    assert mono == wall
    assert len(boot_id()) == 36


def test_the_same_wall_time_results_in_the_same_instant() -> None:
    instants = iter([Instant(5, 105), Instant(10, 1010)])
    wall_times = WallTimes(lambda: next(instants))
    assert wall_times(104) == Instant(4, 104)
    assert wall_times(104) == Instant(4, 104)
    assert wall_times(1009) == Instant(9, 1009)


def test_t8_an_instant_is_shown_by_the_present_wall_clock() -> None:
    """T8: the wall clock was an hour ahead when the interval began."""
    began, now = Instant(10 * NS, 4000 * NS), Instant(30 * NS, 420 * NS)
    assert now.wall_of(began) == 400 * NS
    assert now.wall_of(Instant(-(1 << 64), 0)) == -(1 << 63)
