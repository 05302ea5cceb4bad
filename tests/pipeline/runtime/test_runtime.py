"""Tests of the start, stop and failures of a runtime with test components."""

import asyncio
import logging
from itertools import pairwise

import pytest

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import Delivery, SourceContext
from pipeline.model import DevicesDiscovered, Envelope, Instant, SamplesTaken
from pipeline.runtime.runtime import Runtime
from tests.pipeline.runtime.runtimes import GPUS, gpus, holding, keeper, pods, registered, running
from tests.support.components import KeepingSink, Registered, configured, never
from tests.support.contexts import LoopClock
from tests.support.nodes import claim, claims, reading, uuid_of

__all__ = ["registered"]
pytestmark = pytest.mark.looptime


class TestStartAndStop:
    async def test_events_reach_the_sink_and_the_sink_is_closed_at_the_end(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus, "podlist": holding("a")}
        config = configured({"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0)})
        async with running(config):
            assert pods(keeper(registered).snapshots[-1]) == ["a"]
        assert (keeper(registered).entered, keeper(registered).left) == (1, 1)

    async def test_events_emitted_while_a_source_stops_are_delivered(
        self, registered: Registered
    ) -> None:
        async def busy(ctx: SourceContext) -> None:
            await ctx.emit(DevicesDiscovered(GPUS))
            try:
                await never()
            finally:
                # The last report of a source that is being stopped.
                await ctx.emit(claims(claim("last", uuid_of(0))))

        registered.sources = {"gpus": busy}
        async with running(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})):
            pass
        assert pods(keeper(registered).snapshots[-1]) == ["last"]

    async def test_a_sink_that_cannot_be_entered_ends_the_start_and_closes_the_others(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}
        keeper(registered, "other").failures = [PermanentError("port 9400 is taken")]
        config = configured({"g": ("gpus", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
        with pytest.raises(PermanentError, match="9400"):
            await Runtime(config, clock=LoopClock()).run(asyncio.Event())
        assert keeper(registered).left == 1

    async def test_a_permanent_error_of_a_source_at_its_start_ends_podgpu(
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

    async def test_a_sink_that_hangs_does_not_prevent_the_exit(
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
        [message] = [text for text in caplog.messages if "sink k did not stop" in text]
        assert message.endswith("; podgpu cancels it")
        assert keeper(registered).left == 1

    async def test_a_stop_while_a_sink_is_being_entered_is_obeyed(
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

    async def test_points_that_a_slow_sink_never_took_are_counted_as_dropped(
        self, registered: Registered
    ) -> None:
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
        # The sink had taken one more.
        assert emitted - lost <= 1

    async def test_a_source_that_returns_leaves_the_other_components_running(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus, "once": holding("a", forever=False)}
        config = configured({"g": ("gpus", 0), "o": ("once", 0)}, {"k": ("keep", 0)})
        async with running(config):
            await asyncio.sleep(100)
            assert pods(keeper(registered).snapshots[-1]) == ["a"]


class TestFailure:
    async def test_a_transient_error_is_reported_and_retried_with_growing_delays(
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

    async def test_a_permanent_error_after_the_start_only_takes_the_source_down(
        self, registered: Registered
    ) -> None:
        async def damaged(ctx: SourceContext) -> None:
            await ctx.emit(DevicesDiscovered(GPUS))
            raise PermanentError("line 1000 is damaged")

        registered.sources = {"d": damaged}
        async with running(configured({"d": ("d", 0)}, {"k": ("keep", 0)})):
            await asyncio.sleep(1)
            state = keeper(registered).snapshots[-1].sources["d"]
            assert (state.up, state.reason) == (False, "line 1000 is damaged")

    async def test_a_relayed_source_does_not_replace_a_running_source_of_its_name(
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

    async def test_retry_after_is_the_minimum_delay(self, registered: Registered) -> None:
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

    async def test_each_reason_why_a_sink_is_down_is_logged_once(
        self, registered: Registered, caplog: pytest.LogCaptureFixture
    ) -> None:
        full, gone = TransientError("the disk is full"), TransientError("the folder is gone")
        registered.sources = {"gpus": gpus}
        keeper(registered).failures = [gone, full, full, full]
        async with running(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})):
            await asyncio.sleep(60)
        assert keeper(registered).entered == 1
        warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert [text.partition(";")[0] for text in warnings] == [str(full), str(gone)]

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
            # The sink has one, 64 are in its queue, and the oldest of the others were dropped.
            assert len(keeper(registered, "other").snapshots) == 65
            assert pods(keeper(registered, "other").snapshots[-1]) == ["p199"]


async def test_a_sink_of_the_latest_state_gets_the_newest_snapshot(
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
