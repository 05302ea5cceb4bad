"""However the wall clock is set: nothing is counted twice or lost, and lengths are right."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import NS, Holding
from tests.pipeline.ledger.machine import DEVICE, Expected, Machine, Run, rows
from tests.pipeline.ledger.open_ledger import folder_in_memory, window_of
from tests.support.examples import examples

HOUR = 3600
TO_2039 = 12 * 366 * 24 * HOUR
"""Seconds from the start time of the tests into the year 2039."""

_STEPS = st.sampled_from([HOUR, -HOUR, 7 * 24 * HOUR, -2.5, 0.0, TO_2039, -TO_2039])
_ACTIONS = st.one_of(
    st.tuples(st.just("sample"), st.integers(1, 250)),
    st.tuples(st.just("sample"), st.integers(1, 250)),
    st.tuples(st.just("commit"), st.just(0)),
    st.tuples(st.just("hold"), st.sampled_from("ab ")),
    st.tuples(st.just("set"), _STEPS),
    st.tuples(st.just("kill"), st.integers(1, 900)),
)


class Story:
    """Perform actions, and calculate what the ledger must contain."""

    def __init__(self, path: Path, ahead: float) -> None:
        self.machine = Machine(path, ahead_ns=round(ahead * NS))
        self.run: Run = self.machine.start()
        self.expected, self.committed = Expected(), Expected()
        self.sampled_ns: int | None = None
        """The last sample that is committed, or of this run, by the monotonic clock."""
        self.counted_ns: int | None = None
        self.held_since_ns = self.machine.mono_ns
        self.pending: list[tuple[int, str]] = []
        self.holdings: dict[str, Holding] = {}
        self._sample(first=True)

    def do(self, what: str, much: float) -> None:
        machine = self.machine
        match what:
            case "sample":
                machine.wait(much)
                self._sample()
            case "commit":
                self.run.commit()
                self.committed, self.counted_ns = self.expected.copy(), self.sampled_ns
            case "hold":
                machine.wait(0.25)
                self._add_held_time()
                self.run.hold(str(much).strip())
            case "set":
                machine.ahead_ns += round(much * NS)
            case _:
                assert what == "kill"
                self.run.kill()
                self.expected, self.sampled_ns = self.committed.copy(), self.counted_ns
                machine.wait(much)
                machine.noise_ns = round(much) * 7 % 1000
                self.pending.clear()
                self.held_since_ns = machine.mono_ns
                self.run = machine.start()
                self._sample(first=True)

    def _add_held_time(self) -> None:
        now_ns = self.machine.mono_ns
        self.pending.append((now_ns - self.held_since_ns, self.machine.holder))
        self.held_since_ns = now_ns

    def _sample(self, *, first: bool = False) -> None:
        now_ns = self.machine.mono_ns
        self._add_held_time()
        if first:
            self.pending.clear()
            if self.sampled_ns is not None:
                self.expected.gap += now_ns - self.sampled_ns
        for time_ns, pod in self.pending:
            self.expected.accounted += time_ns
            self.expected.held[pod] += time_ns
        self.pending.clear()
        self.sampled_ns = now_ns
        snapshot = self.run.sample()
        assert snapshot.usage is not None
        self.holdings |= {one.id: one for one in snapshot.usage.ended}
        for one in snapshot.usage.ended:
            assert one.end is not None
            length = snapshot.at.wall_of(one.end) - snapshot.at.wall_of(one.start)
            assert length == one.counted_ns + one.gap_ns >= 0
        for holder in snapshot.layout.attributions[DEVICE.uuid].holders:
            assert snapshot.at.wall_of(holder.since) <= snapshot.at.wall_ns


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(ahead=_STEPS, actions=st.lists(_ACTIONS, max_size=25))
def test_the_ledger_is_right_however_the_clock_is_set(
    ahead: float, actions: list[tuple[str, float]]
) -> None:
    """T7, T8: steps before the first start, during a run and between runs; lost commits."""
    with folder_in_memory() as folder:
        path = folder / "usage.db"
        story = Story(path, ahead)
        for what, much in [*actions, ("sample", 5), ("commit", 0)]:
            story.do(what, much)
        story.run.kill()
        expected = story.committed
        [total] = rows(path, "SELECT sum(accounted_ns), sum(gap_ns) FROM device_hours")
        assert total == (expected.accounted, expected.gap)
        by_pod: dict[str, int] = dict(
            rows(
                path,
                "SELECT ifnull(c.pod, ''), sum(h.held_ns) FROM hours AS h "
                "LEFT JOIN containers AS c ON c.id = h.container GROUP BY 1 HAVING sum(held_ns)",
            )
        )
        assert by_pod == {pod: time for pod, time in expected.held.items() if time}
        assert rows(path, "SELECT sum(end_ns - start_ns) FROM gaps")[0][0] in {expected.gap, None}
        holdings = rows(
            path,
            "SELECT until_ns - start_ns, counted_ns + gap_ns, ifnull(end_ns, until_ns) - until_ns, "
            "held_ns FROM holdings",
        )
        assert all(
            length == counted >= 0 == difference for length, counted, difference, _ in holdings
        )
        assert sum(held for *_, held in holdings) == sum(expected.held[pod] for pod in "ab")
        open_now = rows(
            path,
            "SELECT c.pod, count(*) FROM holdings AS h JOIN containers AS c ON c.id = h.container "
            "WHERE h.end_ns IS NULL GROUP BY 1",
        )
        holder = story.machine.holder
        counts: dict[str, int] = dict(open_now)
        # A row whose end was lost with a kill stays open for ten more minutes, as before.
        assert not holder or counts[holder] >= 1


def test_t7_nothing_counts_twice_when_the_clock_was_ahead_at_the_first_start(
    tmp_path: Path,
) -> None:
    """T7: the clock was ahead by an hour, was set right, and podgpu restarts: 130 s, not 240 s."""
    story = Story(tmp_path / "usage.db", HOUR)
    for what, much in (
        *(("sample", 10), ("set", -HOUR), ("sample", 100), ("commit", 0)),
        *(("kill", 5), ("sample", 20), ("commit", 0)),
    ):
        story.do(what, much)
    story.run.kill()
    [total] = window_of(tmp_path / "usage.db").totals
    assert (total.accounted_ns, total.gap_ns) == (130 * NS, 5 * NS)


@pytest.mark.parametrize("step", [HOUR, -2 * HOUR, TO_2039])
def test_t8_a_holding_keeps_its_length_when_the_clock_is_set_meanwhile(
    tmp_path: Path, step: float
) -> None:
    """T8: its row in the ledger ends after its start, and a query for now finds it."""
    path = tmp_path / "usage.db"
    story = Story(path, 0)
    for what, much in (("sample", 6), ("set", step), ("sample", 7), ("commit", 0)):
        story.do(what, much)
    [(start, until)] = rows(path, "SELECT start_ns, until_ns FROM holdings")
    assert until - start == 13 * NS
    assert until == story.machine.now().wall_ns
    story.do("hold", " ")  # type: ignore[arg-type]
    story.do("sample", 1)
    story.do("commit", 0)
    [(start, end)] = rows(path, "SELECT start_ns, end_ns FROM holdings")
    assert end - start == 13 * NS + NS // 4
    assert end == story.machine.now().wall_ns - NS


def test_t8_the_time_that_podgpu_was_down_is_measured_by_the_monotonic_clock(
    tmp_path: Path,
) -> None:
    """T8: the clock is set while podgpu doesn't run."""
    path = tmp_path / "usage.db"
    story = Story(path, 0)
    for what, much in (
        *(("sample", 6), ("commit", 0), ("set", -HOUR), ("kill", 30)),
        *(("sample", 4), ("commit", 0)),
    ):
        story.do(what, much)
    [(length, gap)] = rows(path, "SELECT until_ns - start_ns, gap_ns FROM holdings")
    assert (length, gap) == (40 * NS, 30 * NS)
    story.run.kill()


def rebooted_machine(path: Path) -> Machine:
    """Return a machine that rebooted 60 s after podgpu was killed, which had run for 10 s."""
    machine = Machine(path)
    run = machine.start()
    run.sample()
    machine.wait(10)
    run.sample()
    run.commit()
    run.kill()
    machine.wait(60)
    machine.reboot()
    return machine


def test_t8_the_gap_of_a_reboot_is_measured_by_the_wall_clock(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    machine = rebooted_machine(path)
    run = machine.start()
    run.sample()
    machine.wait(5)
    run.sample()
    run.commit()
    run.kill()
    [(length, counted, gap)] = rows(
        path, "SELECT until_ns - start_ns, counted_ns, gap_ns FROM holdings"
    )
    assert (length, counted, gap) == (75 * NS, 15 * NS, 60 * NS)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 0])
def test_t8_the_gap_of_a_reboot_is_measured_once_per_boot(tmp_path: Path, step: int) -> None:
    """T8: podgpu is killed before the first sample, and the clock is set before it restarts."""
    path = tmp_path / "usage.db"
    machine = rebooted_machine(path)
    run = machine.start()
    run.commit()
    run.kill()
    assert rows(path, "SELECT boot FROM state") == [(machine.boot,)]
    machine.wait(3)
    machine.ahead_ns += step * NS
    run = machine.start()
    run.sample()
    run.commit()
    run.kill()
    [(length, counted, gap)] = rows(
        path, "SELECT until_ns - start_ns, counted_ns, gap_ns FROM holdings"
    )
    assert (length, counted, gap) == (73 * NS, 10 * NS, 63 * NS)
