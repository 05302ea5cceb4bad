"""For any order of events, other programs' values stay, and podgpu's show what is held."""

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
    api_error,
    claim,
    container,
    path_of,
    pod_of,
    uuids,
    webhook_denial,
)
from tests.support.examples import examples

PODS = ("a", "b")
GPUS = st.sets(st.integers(0, 2), min_size=1).map(lambda found: tuple(sorted(found)))
HOLDINGS = st.dictionaries(st.sampled_from(PODS), GPUS)
OTHER_VALUES = st.sampled_from(["GPU-theirs", "", uuids(0), None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), HOLDINGS),
        st.tuples(st.just("write"), st.sampled_from(PODS), OTHER_VALUES),
        st.tuples(st.just("between"), st.sampled_from(PODS), OTHER_VALUES),
        st.tuples(st.just("spoil"), st.sampled_from(PODS), st.sampled_from(["{", "[]", None])),
        st.tuples(st.just("lose"), st.integers(1, 2)),
        st.tuples(st.just("drop"), st.integers(1, 2)),
        st.tuples(
            st.just("refuse"), st.sampled_from([api_error(0), api_error(409), api_error(500)])
        ),
        st.tuples(
            st.just("refuse"), st.sampled_from([api_error(404), api_error(422), webhook_denial()])
        ),
        st.tuples(st.just("reload")),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.1, 15])),
    ),
    max_size=12,
)


class World:
    """A bench, the last values of other programs, and the last known devices of each pod."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.others_values: dict[str, str] = {}
        self.last: dict[str, tuple[int, ...]] = {}
        self.now: dict[str, tuple[int, ...]] = {}
        self.between: dict[str, str | None] = {}
        self.bench.add_pods(*(pod_of(name, container(gpu=4)) for name in PODS))
        self.bench.api.before = self._before

    def _before(self, method: str, path: str) -> None:
        self.check_others_values()
        name = path.rpartition("/")[2]
        if method == "PATCH" and name in self.between:
            self.write(name, self.between.pop(name))

    def write(self, name: str, value: str | None) -> None:
        """Let another program write or remove the annotation."""
        self.others_values.pop(name, None)
        self.bench.api.annotate(path_of(name), **{KEY: value})
        if value is not None and KEY not in own_annotations(self.bench.annotations(name)):
            self.others_values[name] = value

    def change_mark(self, name: str, mark: str | None) -> None:
        """Let another program change podgpu's mark: the annotation is then not podgpu's."""
        self.bench.api.annotate(path_of(name), **{MARK: mark})
        if KEY in self.bench.annotations(name):
            self.others_values[name] = self.bench.annotations(name)[KEY]

    def check_others_values(self) -> None:
        for name, value in self.others_values.items():
            assert self.bench.annotations(name)[KEY] == value

    async def play(self, steps: list[Any]) -> None:
        for step in steps:
            match step:
                case ("hold", holdings):
                    self.set_holdings(holdings)
                case ("write", name, value):
                    self.write(name, value)
                case ("between", name, value):
                    self.between[name] = value
                case ("spoil", name, mark):
                    self.change_mark(name, mark)
                case ("lose", count):
                    self.bench.api.losing = count
                case ("drop", count):
                    self.bench.api.dropping = count
                case ("refuse", error):
                    self.bench.api.answers.append(error)
                case ("reload",):
                    await self.run(0.05)
                    self.bench.reload()
                case ("wait", seconds):
                    await self.run(seconds)
                case _:
                    raise AssertionError(step)
            self.check_others_values()
        self.between.clear()
        self.bench.api.answers.clear()
        self.bench.api.losing = self.bench.api.dropping = 0
        # No more faults. The held devices change once more, so that the value to write is not one
        # that was written before and has been removed since.
        self.set_holdings(
            {name: tuple({0, 1, 2} - set(self.now.get(name, ()))) or (0,) for name in PODS}
        )
        for _ in range(16):
            await self.run(15)
        for name in PODS:
            self.check_others_values()
            if name not in self.others_values:
                assert self.bench.written(name) == {KEY: uuids(*self.last[name])}

    def set_holdings(self, holdings: dict[str, tuple[int, ...]]) -> None:
        self.now = holdings
        self.last |= holdings
        shared = [claim(name, *gpus) for name, gpus in holdings.items()]
        self.bench.set_claims(
            *(type(c)(c.subject, c.devices, 0.4, None, c.origin, c.resource) for c in shared)
        )

    async def run(self, seconds: float) -> None:
        """Run the sink as its supervisor does: it is started again after an error."""
        try:
            async with self.bench.run_sink() as bench:
                await bench.wait(seconds)
        except TransientError:
            pass


@settings(max_examples=examples(50), deadline=None)
@given(STEPS)
def test_other_programs_values_stay_and_own_values_are_the_last_known(steps: list[Any]) -> None:
    with closing(looptime.new_event_loop()) as loop:
        loop.run_until_complete(World().play(steps))
