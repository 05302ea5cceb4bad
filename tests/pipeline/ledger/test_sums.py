"""After any sequence of events, the amounts in the ledger sum exactly to the devices' totals."""

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_hours, read_window
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS, DeviceUsage, Instant
from tests.pipeline.ledger.open_ledger import (
    FOREVER,
    OpenLedger,
    Snapshots,
    account,
    assert_adds_up,
    folder_in_memory,
    moved,
)
from tests.support.examples import examples
from tests.support.nodes import START, gpu
from tests.support.usage import used

DEVICE = gpu(0)
Amounts = tuple[int, int, int]


@dataclass
class World:
    """One device and its account, as the join would have it."""

    now: Instant = START
    start: Instant = START
    at: Instant = START
    held: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, Instant] = field(default_factory=dict)
    unattributed: list[int] = field(default_factory=lambda: [0, 0, 0])
    forgotten: list[int] = field(default_factory=lambda: [0, 0, 0])

    def sample(self, seconds: float, gains: dict[str, Amounts], rest: Amounts) -> None:
        """Add a sample after some seconds with these increases; the remaining time is unheld."""
        self.now = self.at = moved(self.now, seconds)
        remaining = round(seconds * NS)
        for name, (held, busy, energy) in gains.items():
            part = min(held, remaining)
            remaining -= part
            self.starts.setdefault(name, self.now)
            containers = self.held.setdefault(name, [0, 0, 0])
            self.held[name] = [containers[0] + part, containers[1] + busy, containers[2] + energy]
        _, busy, energy = rest
        self.unattributed = [
            self.unattributed[0] + remaining,
            self.unattributed[1] + busy,
            self.unattributed[2] + energy,
        ]

    def blind(self, seconds: float) -> None:
        """Add a sample after a gap."""
        self.now = self.at = moved(self.now, seconds)

    def forget(self, name: str) -> None:
        amounts = self.held.pop(name, None)
        if amounts is not None:
            del self.starts[name]
            self.forgotten = [a + b for a, b in zip(self.forgotten, amounts, strict=True)]

    def restart(self, seconds: float) -> None:
        self.now = moved(self.now, seconds)
        fresh = World(self.now, self.now, self.now)
        self.__dict__.update(fresh.__dict__)

    def total(self) -> tuple[int, int, int]:
        rows = [*self.held.values(), self.unattributed, self.forgotten]
        held, busy, energy = (sum(row[index] for row in rows) for index in range(3))
        return held, busy, energy

    def usage(self) -> DeviceUsage:
        containers = [
            used(name, start=self.starts[name], busy=busy, held=held, energy=energy)
            for name, (held, busy, energy) in self.held.items()
        ]
        held, busy, energy = self.forgotten
        return account(
            DEVICE,
            *containers,
            start=self.start,
            until=self.at,
            busy=self.unattributed[1],
            unheld=self.unattributed[0],
            energy=self.unattributed[2],
            forgotten=(busy, held, energy),
        )

    def restore(self, usage: DeviceUsage, seconds: float) -> None:
        """Continue an account some seconds after podgpu was killed; then add a sample."""
        self.now = moved(self.now, seconds)
        self.start, self.at = usage.start, usage.at
        containers = usage.containers
        self.held = {
            c.subject.pod: [c.held_ns, c.busy_ns or 0, c.energy_mj or 0] for c in containers
        }
        self.starts = {c.subject.pod: c.start for c in containers}
        self.unattributed = [
            usage.unheld_ns,
            usage.busy_unattributed_ns or 0,
            usage.energy_unattributed_mj or 0,
        ]
        self.forgotten = [
            usage.forgotten_held_ns,
            usage.forgotten_busy_ns,
            usage.forgotten_energy_mj,
        ]
        self.blind(1)


AMOUNTS = st.tuples(st.integers(0, 7 * NS), st.integers(0, 7 * NS), st.integers(0, 9_999))
NAMES = st.sampled_from("abc")
SECONDS = st.one_of(
    st.integers(1, 10), st.floats(0.001, 60), st.just(3600), st.integers(3000, 9000)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sample"), SECONDS, st.dictionaries(NAMES, AMOUNTS, max_size=3), AMOUNTS),
        st.tuples(st.just("blind"), SECONDS),
        st.tuples(st.just("forget"), NAMES),
        st.tuples(st.just("restart"), SECONDS),
        st.tuples(st.just("commit")),
        st.tuples(st.just("unseen")),
        st.tuples(st.just("killed"), SECONDS, st.booleans()),
    ),
    max_size=20,
)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS)
def test_the_ledger_contains_exactly_what_was_counted(
    steps: list[tuple[Any, ...]],
) -> None:
    with folder_in_memory() as folder:
        _run(folder / "usage.db", steps)


def _run(path: Path, steps: list[tuple[Any, ...]]) -> None:
    world, snapshot_of, ledger = World(), Snapshots(), OpenLedger(path)
    ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
    # What the ledger must contain: the increases of earlier accounts, and the start of this one.
    earlier = committed = (0, 0, 0)
    show = True
    for what, *arguments in steps:
        match what:
            case "sample":
                world.sample(*arguments)
            case "blind":
                world.blind(*arguments)
            case "forget":
                world.forget(*arguments)
            case "restart":
                ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
                earlier = _plus(earlier, world.total())
                world.restart(*arguments)
            case "unseen":
                show = False
                continue
            case "commit":
                ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
                ledger.commit()
                committed = _plus(earlier, world.total())
                _check(ledger, committed)
            case "killed":
                ledger.close()
                seconds, recalled = arguments
                ledger = OpenLedger(path, moved(world.now, seconds))
                remaining = ledger.stored.accounts.get(DEVICE.uuid)
                if recalled and remaining is not None:
                    world.restore(ledger.accumulator._accounts[DEVICE.uuid], seconds)
                    earlier = _minus(committed, world.total())
                else:
                    world.restart(seconds)
                    earlier = committed
            case _:
                raise AssertionError(what)
        if show:
            ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
        show = True
    ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
    ledger.commit()
    _check(ledger, _plus(earlier, world.total()), last=True)
    assert ledger.accumulator.inconsistent == 0
    ledger.close()


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _check(ledger: OpenLedger, expected: Amounts, *, last: bool = False) -> None:
    window = ledger.window()
    assert_adds_up(window)
    found = [(t.accounted_ns, t.busy_ns or 0, t.energy_mj or 0) for t in window.totals]
    assert (found or [(0, 0, 0)]) == [expected]
    if not last:
        return
    assert ledger.rows("SELECT 1 FROM hours WHERE min(held_ns, busy_ns, energy_mj) < 0") == []
    hours = [row[0] for row in ledger.rows("SELECT DISTINCT hour FROM device_hours ORDER BY hour")]
    summed = (0, 0, 0)
    with closing(open_readonly(ledger.path)) as connection:
        totals = read_hours(connection, 0, FOREVER)
        assert [one.start_ns // HOUR_NS for one in totals] == hours
        held = sum(one.held_ns for one in window.usage if one.container is not None)
        assert sum(one.held_ns for one in totals) == held
        unknown = sum(one.unknown_ns for one in window.totals)
        assert sum(one.unknown_ns for one in totals) == unknown
        assert (
            sum(one.accounted_ns for one in totals),
            sum(one.busy_ns or 0 for one in totals),
            sum(one.energy_mj or 0 for one in totals),
        ) == expected
        for hour in hours:
            assert isinstance(hour, int)
            one = read_window(connection, hour * HOUR_NS, (hour + 1) * HOUR_NS)
            assert_adds_up(one)
            for total in one.totals:
                more = total.accounted_ns, total.busy_ns or 0, total.energy_mj or 0
                summed = _plus(summed, more)
                assert total.accounted_ns + total.gap_ns <= HOUR_NS + 1000, "except for rounding"
    assert summed == expected


def test_two_containers_of_the_same_name_are_summed_and_not_mixed_with_others(
    tmp_path: Path,
) -> None:
    """A forgotten container that returns starts at 0, and its earlier amounts stay counted."""
    world, snapshot_of, ledger = World(), Snapshots(), OpenLedger(tmp_path / "usage.db")
    ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
    world.sample(10, {"a": (5 * NS, 5 * NS, 50)}, (0, 0, 0))
    ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
    world.forget("a")
    world.sample(10, {"a": (6 * NS, 6 * NS, 60)}, (0, 0, 0))
    ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
    ledger.commit()
    spent = {
        one.container.subject.pod if one.container else "": one for one in ledger.window().usage
    }
    assert (spent["a"].held_ns, spent["a"].busy_ns, spent["a"].energy_mj) == (11 * NS, 11 * NS, 110)
    assert spent[""].held_ns == 9 * NS
    ledger.close()


def test_a_total_that_decreases_is_counted_as_inconsistent_and_makes_a_gap(tmp_path: Path) -> None:
    world, snapshot_of, ledger = World(), Snapshots(), OpenLedger(tmp_path / "usage.db")
    world.sample(10, {"a": (5 * NS, 5 * NS, 50)}, (0, 0, 0))
    ledger.accumulator.add_snapshot(snapshot_of(world.usage()))
    fallen = replace(world, held={"a": [NS, NS, 1]}, at=moved(world.at, 5))
    ledger.accumulator.add_snapshot(snapshot_of(fallen.usage()))
    ledger.commit()
    assert ledger.accumulator.inconsistent == 1
    assert [total.gap_ns for total in ledger.window().totals] == [5 * NS]
    assert_adds_up(ledger.window())
    ledger.close()
