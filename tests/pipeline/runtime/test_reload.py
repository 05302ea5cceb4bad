"""Tests of a running podgpu that gets a new configuration."""

import asyncio

import pytest
from msgspec.structs import replace

from config.schema import Config
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import SourceContext
from pipeline.delivery.options import QueueOptions
from pipeline.runtime.runtime import Runtime
from sinks.jsonl.options import Options as LinesOptions
from tests.pipeline.runtime.runtimes import gpus, holding, keeper, pods, registered, running
from tests.support.components import Registered, configured, never
from tests.support.nodes import claim, claims, uuid_of

__all__ = ["registered"]
pytestmark = pytest.mark.looptime


class TestReload:
    @pytest.mark.slow
    async def test_unchanged_components_are_not_restarted(self, registered: Registered) -> None:
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

    async def test_a_changed_source_restarts_and_its_claims_stay_valid_meanwhile(
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

    async def test_the_claims_of_a_removed_source_are_removed(self, registered: Registered) -> None:
        registered.sources = {"gpus": gpus, "podlist": holding("a")}
        both = configured({"g": ("gpus", 0), "p": ("podlist", 0)}, {"k": ("keep", 0)})
        async with running(both) as runtime:
            await runtime.reload(configured({"g": ("gpus", 0)}, {"k": ("keep", 0)}))
            await asyncio.sleep(1)
            snapshot = keeper(registered).snapshots[-1]
            assert pods(snapshot) == []
            assert list(snapshot.sources) == ["g"]

    async def test_a_replaced_source_is_removed_once_its_successor_reports(
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

    async def test_a_source_that_returns_before_its_removal_stays(
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

    async def test_the_restart_state_of_a_source_survives_a_change_of_its_options(
        self, registered: Registered
    ) -> None:
        found: list[object] = []

        async def counting(ctx: SourceContext) -> None:
            found.append(ctx.restart_state.get("runs"))
            ctx.restart_state["runs"] = len(found)
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

    async def test_the_restart_state_of_a_sink_survives_a_change_of_its_options(
        self, registered: Registered
    ) -> None:
        registered.sources = {"gpus": gpus}

        def state(runtime: Runtime) -> dict[str, object]:
            return runtime._sinks._running["k"].runner._ctx.restart_state

        def with_sinks(**sinks: tuple[str, int]) -> Config:
            return configured({"g": ("gpus", 0)}, {"z": ("keep", 0), **sinks})

        async with running(with_sinks(k=("other", 0))) as runtime:
            state(runtime)["at"] = 1
            await runtime.reload(with_sinks(k=("other", 1)))
            assert state(runtime) == {"at": 1}
            await runtime.reload(with_sinks(k=("keep", 1)))
            assert state(runtime) == {}
            state(runtime)["at"] = 2
            await runtime.reload(with_sinks(k=("other", 0)))
            assert state(runtime) == {}
            state(runtime)["at"] = 3
            keeper(registered, "other").failures = [None, PermanentError("no")]
            assert not await runtime.reload(with_sinks(k=("other", 1)))
            assert state(runtime) == {"at": 3}
            await runtime.reload(with_sinks())
            await runtime.reload(with_sinks(k=("other", 0)))
            assert state(runtime) == {}

    async def test_all_changed_sinks_stop_before_the_first_new_one_is_entered(
        self, registered: Registered
    ) -> None:
        """So that two sinks can swap a resource that only one of them can have."""
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
            # The new sink is entered, the other one fails, and then the old sink fails too.
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

    async def test_a_sink_that_could_not_be_entered_leaves_no_metrics(
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

    async def test_a_new_sink_that_cannot_be_entered_leaves_the_configuration_unchanged(
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


class TestCountersOfASink:
    @pytest.mark.parametrize(
        ("kind", "queue", "kept"),
        [
            ("keep", None, True),
            ("other", None, False),
            ("keep", QueueOptions(), False),
        ],
    )
    async def test_they_are_kept_unless_the_new_sink_of_that_name_counts_differently(
        self, registered: Registered, kind: str, queue: QueueOptions | None, kept: bool
    ) -> None:
        """Otherwise points that one sink sent are compared with those that another produced."""

        def of(kind: str, value: int, queue: QueueOptions | None) -> Config:
            config = configured({"g": ("gpus", 0)}, {"k": (kind, value)})
            options = LinesOptions(keep=value, queue=queue)
            return replace(
                config, sinks={"k": replace(config.sinks["k"], kind=kind, options=options)}
            )

        registered.sources = {"gpus": gpus}
        async with running(of("keep", 1, None)) as runtime:
            emitted = "podgpu_sink_emitted_total"
            runtime._shared.telemetry.add(emitted, 5, (("sink", "k"),))
            assert await runtime.reload(of(kind, 2, queue))
            families = {family.name for family, _ in runtime._shared.telemetry.collect({})}
            assert (emitted in families) == kept
