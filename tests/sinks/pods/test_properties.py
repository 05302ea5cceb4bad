"""Whatever happens in whatever order, a foreign value stays and ours says what is held."""

from contextlib import closing
from typing import Any

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.allocations.own_annotations import MARK, own_annotations
from pipeline.base.errors import TransientError
from tests.sinks.pods.support import (
    KEY,
    Bench,
    asking,
    denial,
    held,
    path_of,
    pod_of,
    refused,
    uuids,
)

PODS = ("a", "b")
GPUS = st.sets(st.integers(0, 2), min_size=1).map(lambda found: tuple(sorted(found)))
HOLDINGS = st.dictionaries(st.sampled_from(PODS), GPUS)
FOREIGN = st.sampled_from(["GPU-theirs", "", uuids(0), None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), HOLDINGS),
        st.tuples(st.just("write"), st.sampled_from(PODS), FOREIGN),
        st.tuples(st.just("between"), st.sampled_from(PODS), FOREIGN),
        st.tuples(st.just("spoil"), st.sampled_from(PODS), st.sampled_from(["{", "[]", None])),
        st.tuples(st.just("lose"), st.integers(1, 2)),
        st.tuples(st.just("drop"), st.integers(1, 2)),
        st.tuples(st.just("refuse"), st.sampled_from([refused(0), refused(409), refused(500)])),
        st.tuples(st.just("refuse"), st.sampled_from([refused(404), refused(422), denial()])),
        st.tuples(st.just("reload")),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.1, 15])),
    ),
    max_size=12,
)


class World:
    """A bench, what others have written last, and what each pod was last known to hold."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.theirs: dict[str, str] = {}
        self.last: dict[str, tuple[int, ...]] = {}
        self.now: dict[str, tuple[int, ...]] = {}
        self.between: dict[str, str | None] = {}
        self.bench.has(*(pod_of(name, asking(gpu=4)) for name in PODS))
        self.bench.api.before = self._before

    def _before(self, method: str, path: str) -> None:
        self.holds()
        name = path.rpartition("/")[2]
        if method == "PATCH" and name in self.between:
            self.writes(name, self.between.pop(name))

    def writes(self, name: str, value: str | None) -> None:
        """Somebody else writes, or takes away what stands there."""
        self.theirs.pop(name, None)
        self.bench.api.annotate(path_of(name), **{KEY: value})
        if value is not None and KEY not in own_annotations(self.bench.annotations(name)):
            self.theirs[name] = value

    def spoils(self, name: str, mark: str | None) -> None:
        """Somebody takes podgpu's mark from it: what stands there is anybody's then."""
        self.bench.api.annotate(path_of(name), **{MARK: mark})
        if KEY in self.bench.annotations(name):
            self.theirs[name] = self.bench.annotations(name)[KEY]

    def holds(self) -> None:
        for name, value in self.theirs.items():
            assert self.bench.annotations(name)[KEY] == value

    async def play(self, steps: list[Any]) -> None:
        for step in steps:
            match step:
                case ("hold", held_now):
                    self.show(held_now)
                case ("write", name, value):
                    self.writes(name, value)
                case ("between", name, value):
                    self.between[name] = value
                case ("spoil", name, mark):
                    self.spoils(name, mark)
                case ("lose", count):
                    self.bench.api.losing = count
                case ("drop", count):
                    self.bench.api.dropping = count
                case ("refuse", error):
                    self.bench.api.answers.append(error)
                case ("reload",):
                    await self.runs(0.05)
                    self.bench.reload()
                case ("wait", seconds):
                    await self.runs(seconds)
                case _:
                    raise AssertionError(step)
            self.holds()
        self.between.clear()
        self.bench.api.answers.clear()
        self.bench.api.losing = self.bench.api.dropping = 0
        # Quiet: all that goes wrong has gone wrong, and somebody changes what is held once more,
        # so that it isn't something that was written, and taken away again since.
        self.show({name: tuple({0, 1, 2} - set(self.now.get(name, ()))) or (0,) for name in PODS})
        for _ in range(16):
            await self.runs(15)
        for name in PODS:
            self.holds()
            if name not in self.theirs:
                assert self.bench.written(name) == {KEY: uuids(*self.last[name])}

    def show(self, held_now: dict[str, tuple[int, ...]]) -> None:
        self.now = held_now
        self.last |= held_now
        shared = [held(name, *gpus) for name, gpus in held_now.items()]
        self.bench.holds(
            *(type(c)(c.subject, c.devices, 0.4, None, c.origin, c.resource) for c in shared)
        )

    async def runs(self, seconds: float) -> None:
        """Let the sink run, as its supervisor would: entered again after an error."""
        try:
            async with self.bench.keeping() as bench:
                await bench.rests(seconds)
        except TransientError:
            pass


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_a_foreign_value_stays_and_ours_is_the_last_known(steps: list[Any]) -> None:
    with closing(looptime.new_event_loop()) as loop:
        loop.run_until_complete(World().play(steps))
