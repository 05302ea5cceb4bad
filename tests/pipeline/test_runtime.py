"""Start, stop, failure and reload of the whole, with the test's own components."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from config.schema import Config
from pipeline.contracts import Delivery, SourceContext
from pipeline.errors import PermanentError, TransientError
from pipeline.model import DevicesDiscovered, Envelope, Instant, SamplesTaken, Snapshot
from pipeline.runtime import Runtime
from tests.support.components import KeepingSink, Registered, configured, never
from tests.support.contexts import LoopClock
from tests.support.nodes import claim, claims, gpu, reading, uuid_of

GPUS = (gpu(0), gpu(1))
pytestmark = pytest.mark.looptime


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registered]:
    registered = Registered()
    registered.sinks["keep"] = KeepingSink()
    registered.sinks["other"] = KeepingSink()
    with registered.installed(monkeypatch):
        yield registered


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Runtime]:
    stop = asyncio.Event()
    runtime = Runtime(config, clock=LoopClock())
    task = asyncio.create_task(runtime.run(stop))
    try:
        await asyncio.sleep(0.5)
        yield runtime
    finally:
        stop.set()
        await task


def keeper(registered: Registered, kind: str = "keep") -> KeepingSink:
    sink = registered.sinks[kind]
    assert isinstance(sink, KeepingSink)
    return sink


def pods(snapshot: Snapshot) -> list[str]:
    found = snapshot.layout.attributions.values()
    return [holder.subject.pod for known in found for holder in known.holders]


async def gpus(ctx: SourceContext) -> None:
    await ctx.emit(DevicesDiscovered(GPUS))
    await never()


def holding(pod: str, forever: bool = True):  # type: ignore[no-untyped-def]
    async def run(ctx: SourceContext) -> None:
        await ctx.emit(claims(claim(pod, uuid_of(0))))
        if forever:
            await never()

    return run


class TestStartAndStop:
    async def test_events_reach_the_sink_and_all_is_given_back(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus, "podlist": holding("a")}
        config = configured({"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0)})
        async with running(config):
            assert pods(keeper(registered).snapshots[-1]) == ["a"]
        assert (keeper(registered).entered, keeper(registered).left) == (1, 1)

    async def test_what_was_emitted_before_the_stop_is_delivered(
        self, registered: Registered
    ) -> None:
        async def busy(ctx: SourceContext) -> None:
            await ctx.emit(DevicesDiscovered(GPUS))
            try:
                await never()
            finally:
                # The last word of a source that is being stopped.
                await ctx.emit(claims(claim("last", uuid_of(0))))

        registered.sources = {"gpus": busy}
        async with running(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})):
            pass
        assert pods(keeper(registered).snapshots[-1]) == ["last"]

    async def test_a_sink_that_cannot_be_had_ends_the_start_and_frees_the_others(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        keeper(registered, "other").failures = [PermanentError("port 9400 is taken")]
        config = configured({"g": ("gpus", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        with pytest.raises(PermanentError, match="9400"):
            await Runtime(config, clock=LoopClock()).run(asyncio.Event())
        assert keeper(registered).left == 1

    async def test_a_source_that_cannot_be_had_ends_the_first_start(
        self, registered: Registered
    ) -> None:
        async def impossible(ctx: SourceContext) -> None:
            raise PermanentError("not a recording")

        registered.sources = {"bad": impossible}
        with pytest.raises(ExceptionGroup) as caught:
            await Runtime(configured({"b": ("bad", 0)}, {"k": ("keep", 0)}), clock=LoopClock()).run(
                asyncio.Event()
            )
        assert caught.group_contains(PermanentError, match="not a recording")
        assert keeper(registered).left == 1

    async def test_a_bug_in_a_source_ends_the_process(self, registered: Registered) -> None:
        async def buggy(ctx: SourceContext) -> None:
            await ctx.clock.sleep(1)
            raise ZeroDivisionError

        registered.sources = {"buggy": buggy}
        with pytest.raises(ExceptionGroup) as caught:
            await Runtime(
                configured({"b": ("buggy", 0)}, {"k": ("keep", 0)}), clock=LoopClock()
            ).run(asyncio.Event())
        assert caught.group_contains(ZeroDivisionError)
        assert keeper(registered).left == 1

    async def test_a_sink_that_hangs_cannot_hold_the_exit(
        self, registered: Registered, caplog: pytest.LogCaptureFixture
    ) -> None:
        registered.sources = {"gpus": gpus}
        keeper(registered).gate.clear()
        started = asyncio.get_running_loop().time()
        with caplog.at_level(logging.WARNING):
            logging.getLogger("podgpu").propagate = True
            async with running(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})):
                pass
        assert asyncio.get_running_loop().time() - started < 12
        assert "sink k did not stop" in caplog.text
        assert keeper(registered).left == 1

    async def test_a_stop_while_a_sink_is_being_entered_is_heard(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        keeper(registered).door.clear()
        stop = asyncio.Event()
        config = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
        task = asyncio.create_task(Runtime(config, clock=LoopClock()).run(stop))
        await asyncio.sleep(1)
        stop.set()
        async with asyncio.timeout(3):
            await task
        assert keeper(registered).entered == 0

    async def test_what_a_late_sink_never_took_is_counted(self, registered: Registered) -> None:
        async def many(ctx: SourceContext) -> None:
            await ctx.emit(DevicesDiscovered(GPUS))
            while True:
                await ctx.emit(SamplesTaken((reading(GPUS[0], "power_watts", 1),)))
                await ctx.clock.sleep(1)

        registered.sources = {"many": many}
        keeper(registered).gate.clear()
        config = configured({"m": ("many", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        async with running(config) as runtime:
            await asyncio.sleep(10.2)
        dropped = {
            (point.labels, point.value)
            for family, points in runtime.telemetry()
            for point in points
            if family.name == "podgpu_sink_dropped_total" and point.value
        }
        emitted = sum(len(s.fresh) for s in keeper(registered, "other").snapshots)
        [(labels, lost)] = dropped
        assert dict(labels) == {"sink": "k", "reason": "stopped"}
        # One more was in the sink's own hands.
        assert emitted - lost <= 1

    async def test_a_source_that_returns_leaves_the_rest_running(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus, "once": holding("a", forever=False)}
        config = configured({"g": ("gpus", 0), "o": ("once", 0)}, {"k": ("keep", 0)})
        async with running(config):
            await asyncio.sleep(100)
            assert pods(keeper(registered).snapshots[-1]) == ["a"]


class TestFailure:
    async def test_a_transient_failure_is_told_and_tried_again_with_growing_delays(
        self, registered: Registered
    ) -> None:
        tries: list[Instant] = []

        async def flaky(ctx: SourceContext) -> None:
            tries.append(ctx.clock.now())
            if len(tries) < 5:
                raise TransientError("no driver")
            await ctx.emit(DevicesDiscovered(GPUS))
            await never()

        registered.sources = {"flaky": flaky}
        async with running(configured({"f": ("flaky", 0)}, {"k": ("keep", 0)})):
            state = keeper(registered).snapshots[-1].sources["f"]
            assert (state.up, state.reason) == (False, "no driver")
            await asyncio.sleep(60)
            assert keeper(registered).snapshots[-1].sources["f"].up
        gaps = [a.seconds_until(b) for a, b in pairwise(tries)]
        assert all(base <= gap <= base * 1.26 for gap, base in zip(gaps, (1, 2, 4, 8), strict=True))

    async def test_what_cannot_be_had_later_on_ends_nothing(self, registered: Registered) -> None:
        async def damaged(ctx: SourceContext) -> None:
            await ctx.emit(DevicesDiscovered(GPUS))
            raise PermanentError("line 1000 is damaged")

        registered.sources = {"d": damaged}
        async with running(configured({"d": ("d", 0)}, {"k": ("keep", 0)})):
            await asyncio.sleep(1)
            state = keeper(registered).snapshots[-1].sources["d"]
            assert (state.up, state.reason) == (False, "line 1000 is damaged")

    async def test_a_relayed_source_never_takes_the_name_of_one_that_runs(
        self, registered: Registered
    ) -> None:
        async def relaying(ctx: SourceContext) -> None:
            event = claims(claim("recorded", uuid_of(1)))
            await ctx.relay(Envelope("p", "podlist", 0, ctx.clock.now(), event))
            await never()

        registered.sources = {"gpus": gpus, "podlist": holding("live"), "r": relaying}
        sources = {"g": ("gpus", 0), "p": ("podlist", 0), "r": ("r", 0)}
        async with running(configured(sources, {"k": ("keep", 0)})) as runtime:
            await asyncio.sleep(1)
            assert pods(keeper(registered).snapshots[-1]) == ["live", "recorded"]
            del sources["r"]
            await runtime.reload(configured(sources, {"k": ("keep", 0)}))
            await asyncio.sleep(1)
            assert pods(keeper(registered).snapshots[-1]) == ["live"]

    async def test_retry_after_is_a_floor(self, registered: Registered) -> None:
        tries: list[Instant] = []

        async def limited(ctx: SourceContext) -> None:
            tries.append(ctx.clock.now())
            raise TransientError("slow down", retry_after=30)

        registered.sources = {"limited": limited}
        async with running(configured({"l": ("limited", 0)}, {"k": ("keep", 0)})):
            await asyncio.sleep(40)
        assert len(tries) == 2

    async def test_a_failing_sink_is_entered_again_and_the_others_lose_nothing(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus, "podlist": holding("a")}
        keeper(registered, "other").run_failures = [TransientError("pipe closed")]
        config = configured(
            {"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0), "o": ("other", 0)}
        )
        async with running(config):
            assert pods(keeper(registered).snapshots[-1]) == ["a"]
            await asyncio.sleep(2)
            assert pods(keeper(registered, "other").snapshots[-1]) == ["a"]
        assert keeper(registered, "other").entered == 2
        assert keeper(registered, "other").left == 2

    async def test_a_slow_sink_does_not_slow_a_fast_one(self, registered: Registered) -> None:
        async def many(ctx: SourceContext) -> None:
            await ctx.emit(DevicesDiscovered(GPUS))
            for turn in range(200):
                await ctx.emit(claims(claim(f"p{turn}", uuid_of(0))))
                await ctx.clock.sleep(0.001)
            await never()

        registered.sources = {"many": many}
        keeper(registered, "other").gate.clear()
        config = configured({"m": ("many", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        async with running(config):
            assert len(keeper(registered).snapshots) >= 200
            keeper(registered, "other").gate.set()
            await asyncio.sleep(1)
            # One in its hands, 64 in its queue; the oldest of the rest are gone.
            assert len(keeper(registered, "other").snapshots) == 65
            assert pods(keeper(registered, "other").snapshots[-1]) == ["p199"]


class TestReload:
    async def test_unchanged_components_are_left_alone(self, registered: Registered) -> None:
        runs: list[str] = []

        async def counted(ctx: SourceContext) -> None:
            runs.append(ctx.name)
            await gpus(ctx)

        registered.sources = {"gpus": counted}
        one = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
        two = configured({"g": ("gpus", 0), "h": ("gpus", 0)}, {"k": ("keep", 0)})
        async with running(one) as runtime:
            assert await runtime.reload(two)
            await asyncio.sleep(1)
            assert runs == ["g", "h"]
            assert keeper(registered).entered == 1

    async def test_a_changed_source_is_restarted_and_its_word_stands_meanwhile(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus, "podlist": holding("a")}
        sources = {"g": ("gpus", 0), "p": ("podlist", 0)}
        async with running(configured(sources, {"k": ("keep", 0)})) as runtime:
            registered.sources["podlist"] = holding("b")
            seen = len(keeper(registered).snapshots)
            await runtime.reload(configured(sources | {"p": ("podlist", 1)}, {"k": ("keep", 0)}))
            await asyncio.sleep(1)
            assert [pods(s) for s in keeper(registered).snapshots[seen:]] in (
                [["b"]],
                [["a"], ["b"]],
            )

    async def test_a_removed_source_takes_its_claims_along(self, registered: Registered) -> None:
        registered.sources = {"gpus": gpus, "podlist": holding("a")}
        both = configured({"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0)})
        async with running(both) as runtime:
            await runtime.reload(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)}))
            await asyncio.sleep(1)
            snapshot = keeper(registered).snapshots[-1]
            assert pods(snapshot) == []
            assert list(snapshot.sources) == ["g"]

    async def test_a_renamed_source_leaves_once_its_successor_speaks(
        self, registered: Registered
    ) -> None:
        async def late(ctx: SourceContext) -> None:
            await ctx.clock.sleep(3)
            await ctx.emit(claims(claim("b", uuid_of(0))))
            await never()

        registered.sources = {"gpus": gpus, "podlist": holding("a"), "late": late}
        old = configured({"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0)})
        new = configured({"g": ("gpus", 0), "q": ("late", 0)}, {"k": ("keep", 0)})
        async with running(old) as runtime:
            seen = len(keeper(registered).snapshots)
            await runtime.reload(new)
            await asyncio.sleep(10)
            found = [pods(snapshot) for snapshot in keeper(registered).snapshots[seen:]]
            assert [] not in found
            assert found[-1] == ["b"]
            assert list(keeper(registered).snapshots[-1].sources) == ["g", "q"]

    async def test_a_source_that_comes_back_while_it_was_leaving_stays(
        self, registered: Registered
    ) -> None:
        async def silent(ctx: SourceContext) -> None:
            await never()

        registered.sources = {"gpus": gpus, "podlist": holding("a"), "silent": silent}
        old = configured({"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0)})
        new = configured({"g": ("gpus", 0), "s": ("silent", 0)}, {"k": ("keep", 0)})
        async with running(old) as runtime:
            await runtime.reload(new)
            await asyncio.sleep(1)
            await runtime.reload(old)
            await asyncio.sleep(30)
            assert pods(keeper(registered).snapshots[-1]) == ["a"]

    async def test_what_a_source_keeps_survives_a_change_of_its_options(
        self, registered: Registered
    ) -> None:
        found: list[object] = []

        async def counting(ctx: SourceContext) -> None:
            found.append(ctx.kept.get("runs"))
            ctx.kept["runs"] = len(found)
            await never()

        registered.sources = {"c": counting, "gpus": gpus}
        sinks = {"k": ("keep", 0)}
        async with running(configured({"c": ("c", 0)}, sinks)) as runtime:
            await runtime.reload(configured({"c": ("c", 1)}, sinks))
            await asyncio.sleep(1)
            await runtime.reload(configured({"g": ("gpus", 0)}, sinks))
            await asyncio.sleep(20)
            await runtime.reload(configured({"c": ("c", 2)}, sinks))
            await asyncio.sleep(1)
        assert found == [None, 1, None]

    async def test_all_that_change_stop_before_the_first_of_the_new_is_entered(
        self, registered: Registered
    ) -> None:
        """So that two sinks can swap what only one of them may have."""
        registered.sources = {"gpus": gpus}
        both = (keeper(registered), keeper(registered, "other"))

        async with running(
            configured({"g": ("gpus", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        ) as runtime:
            both[0].door.clear()
            reload = asyncio.create_task(
                runtime.reload(
                    configured({"g": ("gpus", 0)}, {"k": ("keep", 1), "o": ("other", 1)})
                )
            )
            await asyncio.sleep(1)
            assert [sink.left for sink in both] == [1, 1]
            both[0].door.set()
            assert await reload
            assert [sink.entered for sink in both] == [2, 2]

    async def test_a_rollback_that_fails_leaves_the_sink_to_its_supervisor(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        one = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
        two = configured({"g": ("gpus", 0)}, {"k": ("keep", 1), "o": ("other", 0)})
        async with running(one) as runtime:
            # The new one is entered, another is not, and then the old one finds its place gone.
            keeper(registered).failures = [PermanentError("gone"), None]
            keeper(registered, "other").failures = [PermanentError("taken")]
            assert await runtime.reload(two) is False
            assert runtime.config == one
            assert keeper(registered).entered == keeper(registered).left == 2
            await asyncio.sleep(200)
            assert keeper(registered).entered == 3
            assert await runtime.reload(two)
            assert keeper(registered, "other").entered == 1
            sinks = {
                dict(point.labels)["sink"]
                for family, points in runtime.telemetry()
                if family.name == "podgpu_sink_up"
                for point in points
            }
            assert sinks == {"k", "o"}

    async def test_a_sink_that_was_refused_leaves_no_metrics_behind(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        keeper(registered, "other").failures = [PermanentError("taken")]
        two = configured({"g": ("gpus", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        async with running(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})) as runtime:
            assert await runtime.reload(two) is False
            named = [p.labels for _, points in runtime.telemetry() for p in points]
            assert not [labels for labels in named if ("sink", "o") in labels]

    async def test_a_stop_does_not_wait_for_a_reload_that_hangs(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        loop = asyncio.get_running_loop()
        keeper(registered, "other").door.clear()
        two = configured({"g": ("gpus", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        async with running(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})) as runtime:
            hanging = asyncio.create_task(runtime.reload(two))
            await asyncio.sleep(1)
            started = loop.time()
        assert loop.time() - started < 3
        assert hanging.cancelled()

    async def test_a_new_sink_that_cannot_be_had_leaves_everything_as_it_was(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        keeper(registered, "other").failures = [PermanentError("taken")]
        one = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
        two = configured({"g": ("gpus", 1)}, {"k": ("keep", 1), "o": ("other", 0)})
        async with running(one) as runtime:
            assert await runtime.reload(two) is False
            assert runtime.config == one
            # Stopped, started with its new options, stopped, and started with the old ones.
            assert keeper(registered).entered == 3
            assert keeper(registered).left == 2
        assert keeper(registered).left == 3

    async def test_a_sink_that_is_removed_is_flushed_and_left(self, registered: Registered) -> None:
        registered.sources = {"gpus": gpus}
        two = configured({"g": ("gpus", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        async with running(two) as runtime:
            await runtime.reload(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)}))
            assert keeper(registered, "other").left == 1
            assert keeper(registered).left == 0


async def test_a_state_sink_gets_the_newest_and_nothing_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered = Registered()
    registered.sinks["keep"] = KeepingSink()

    async def many(ctx: SourceContext) -> None:
        await ctx.emit(DevicesDiscovered(GPUS))
        for turn in range(50):
            await ctx.emit(claims(claim(f"p{turn}", uuid_of(0))))
            await ctx.clock.sleep(0.001)
        await never()

    registered.sources = {"many": many}
    with registered.installed(monkeypatch, Delivery.LATEST):
        keeper(registered).gate.clear()
        async with running(configured({"m": ("many", 0)}, {"k": ("keep", 0)})):
            keeper(registered).gate.set()
            await asyncio.sleep(1)
            assert pods(keeper(registered).snapshots[-1]) == ["p49"]
            assert len(keeper(registered).snapshots) < 10
