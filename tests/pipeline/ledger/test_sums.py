"""Whatever happens, what stands in the ledger comes to the devices' totals, to the last digit."""

import tempfile
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_window
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS, DeviceUsage, Instant
from tests.pipeline.ledger.keeping import Kept, Shown, account, assert_adds_up, moved
from tests.support.nodes import START, gpu
from tests.support.usage import used

DEVICE = gpu(0)
Amounts = tuple[int, int, int]


@dataclass
class World:
    """One device and its account, as the join would keep it."""

    now: Instant = START
    start: Instant = START
    at: Instant = START
    held: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, Instant] = field(default_factory=dict)
    no_one: list[int] = field(default_factory=lambda: [0, 0, 0])
    forgotten: list[int] = field(default_factory=lambda: [0, 0, 0])

    def look(self, seconds: float, gains: dict[str, Amounts], rest: Amounts) -> None:
        """Look after some seconds, in which these gained so much; held time is what is left."""
        self.now = self.at = moved(self.now, seconds)
        left = round(seconds * NS)
        for name, (held, busy, energy) in gains.items():
            part = min(held, left)
            left -= part
            self.starts.setdefault(name, self.now)
            had = self.held.setdefault(name, [0, 0, 0])
            self.held[name] = [had[0] + part, had[1] + busy, had[2] + energy]
        _, busy, energy = rest
        self.no_one = [self.no_one[0] + left, self.no_one[1] + busy, self.no_one[2] + energy]

    def blind(self, seconds: float) -> None:
        """Look again, after a time of which there is no account."""
        self.now = self.at = moved(self.now, seconds)

    def forget(self, name: str) -> None:
        gone = self.held.pop(name, None)
        if gone is not None:
            del self.starts[name]
            self.forgotten = [a + b for a, b in zip(self.forgotten, gone, strict=True)]

    def restart(self, seconds: float) -> None:
        self.now = moved(self.now, seconds)
        fresh = World(self.now, self.now, self.now)
        self.__dict__.update(fresh.__dict__)

    def total(self) -> tuple[int, int, int]:
        rows = [*self.held.values(), self.no_one, self.forgotten]
        held, busy, energy = (sum(row[place] for row in rows) for place in range(3))
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
            busy=self.no_one[1],
            unheld=self.no_one[0],
            energy=self.no_one[2],
            forgotten=(busy, held, energy),
        )

    def restore(self, usage: DeviceUsage, seconds: float) -> None:
        """Go on from an account, so many seconds after podgpu was killed; a look follows."""
        self.now = moved(self.now, seconds)
        self.start, self.at = usage.start, usage.at
        had = usage.containers
        self.held = {c.subject.pod: [c.held_ns, c.busy_ns or 0, c.energy_mj or 0] for c in had}
        self.starts = {c.subject.pod: c.start for c in had}
        self.no_one = [
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
        st.tuples(st.just("look"), SECONDS, st.dictionaries(NAMES, AMOUNTS, max_size=3), AMOUNTS),
        st.tuples(st.just("blind"), SECONDS),
        st.tuples(st.just("forget"), NAMES),
        st.tuples(st.just("anew"), SECONDS),
        st.tuples(st.just("commit")),
        st.tuples(st.just("unseen")),
        st.tuples(st.just("killed"), SECONDS, st.booleans()),
    ),
    max_size=20,
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_all_that_was_counted_stands_there_and_is_someones(
    steps: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder) / "usage.db", steps)


def _run(path: Path, steps: list[tuple[Any, ...]]) -> None:
    world, shown, kept = World(), Shown(), Kept(path)
    kept.book.add_snapshot(shown(world.usage()))
    # What the ledger has to come to: what accounts before have brought, and what this one began at.
    earlier = committed = (0, 0, 0)
    show = True
    for what, *given_ in steps:
        match what:
            case "look":
                world.look(*given_)
            case "blind":
                world.blind(*given_)
            case "forget":
                world.forget(*given_)
            case "anew":
                kept.book.add_snapshot(shown(world.usage()))
                earlier = _plus(earlier, world.total())
                world.restart(*given_)
            case "unseen":
                show = False
                continue
            case "commit":
                kept.book.add_snapshot(shown(world.usage()))
                kept.commit()
                committed = _plus(earlier, world.total())
                _check(kept, committed)
            case "killed":
                kept.close()
                seconds, recalled = given_
                kept = Kept(path, moved(world.now, seconds))
                left = kept.left.accounts.get(DEVICE.uuid)
                if recalled and left is not None:
                    world.restore(kept.book._accounts[DEVICE.uuid], seconds)
                    earlier = _minus(committed, world.total())
                else:
                    world.restart(seconds)
                    earlier = committed
            case _:
                raise AssertionError(what)
        if show:
            kept.book.add_snapshot(shown(world.usage()))
        show = True
    kept.book.add_snapshot(shown(world.usage()))
    kept.commit()
    _check(kept, _plus(earlier, world.total()), last=True)
    assert kept.book.inconsistent == 0
    kept.close()


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _check(kept: Kept, wanted: Amounts, *, last: bool = False) -> None:
    whole = kept.window()
    assert_adds_up(whole)
    found = [(t.accounted_ns, t.busy_ns or 0, t.energy_mj or 0) for t in whole.totals]
    assert (found or [(0, 0, 0)]) == [wanted]
    if not last:
        return
    assert kept.rows("SELECT 1 FROM hours WHERE min(held_ns, busy_ns, energy_mj) < 0") == []
    hours = [row[0] for row in kept.rows("SELECT DISTINCT hour FROM device_hours ORDER BY hour")]
    summed = (0, 0, 0)
    with closing(open_readonly(kept.path)) as connection:
        for hour in hours:
            assert isinstance(hour, int)
            one = read_window(connection, hour * HOUR_NS, (hour + 1) * HOUR_NS)
            assert_adds_up(one)
            for total in one.totals:
                more = total.accounted_ns, total.busy_ns or 0, total.energy_mj or 0
                summed = _plus(summed, more)
                assert total.accounted_ns + total.gap_ns <= HOUR_NS + 1000, "but for rounding"
    assert summed == wanted


def test_no_one_is_charged_for_what_another_of_the_same_name_had(tmp_path: Path) -> None:
    """A container that was forgotten and comes back begins from 0, and its past stays counted."""
    world, shown, kept = World(), Shown(), Kept(tmp_path / "usage.db")
    kept.book.add_snapshot(shown(world.usage()))
    world.look(10, {"a": (5 * NS, 5 * NS, 50)}, (0, 0, 0))
    kept.book.add_snapshot(shown(world.usage()))
    world.forget("a")
    world.look(10, {"a": (6 * NS, 6 * NS, 60)}, (0, 0, 0))
    kept.book.add_snapshot(shown(world.usage()))
    kept.commit()
    spent = {one.container.subject.pod if one.container else "": one for one in kept.window().usage}
    assert (spent["a"].held_ns, spent["a"].busy_ns, spent["a"].energy_mj) == (11 * NS, 11 * NS, 110)
    assert spent[""].held_ns == 9 * NS
    kept.close()


def test_a_total_that_falls_is_counted_and_reported_as_a_gap(tmp_path: Path) -> None:
    world, shown, kept = World(), Shown(), Kept(tmp_path / "usage.db")
    world.look(10, {"a": (5 * NS, 5 * NS, 50)}, (0, 0, 0))
    kept.book.add_snapshot(shown(world.usage()))
    fallen = replace(world, held={"a": [NS, NS, 1]}, at=moved(world.at, 5))
    kept.book.add_snapshot(shown(fallen.usage()))
    kept.commit()
    assert kept.book.inconsistent == 1
    assert [total.gap_ns for total in kept.window().totals] == [5 * NS]
    assert_adds_up(kept.window())
    kept.close()
