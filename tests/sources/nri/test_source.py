"""The nri source: what a runtime reports becomes events."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.clock import SystemClock
from pipeline.component.accepted_annotations import Gpu
from pipeline.model import (
    Claim,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Evidence,
    Origin,
    PartialRef,
    Pod,
    PodInfo,
    RawDeviceId,
)
from sources.nri.messages import EVENTS
from tests.fakes.nri import FakeRuntime, wire
from tests.sources.nri.source_runner import TrackingContext, eventually, in_thread, running_source

A = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"
POD = wire.pod()
ENV = [f"NVIDIA_VISIBLE_DEVICES={A}"]
ID = "train-0.main"
BIG = [f"FILLER={'x' * 200_000}"]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with FakeRuntime(tmp_path / "nri.sock") as created:
        yield created


async def connected(ctx: TrackingContext, times: int = 1) -> ContainersReplaced:
    return (await ctx.wait_for(ContainersReplaced, times))[-1]


async def test_a_container_is_reported_from_its_creation_to_its_end(runtime: FakeRuntime) -> None:
    async with running_source(runtime.path) as ctx:
        assert (await connected(ctx)).containers == ()
        await in_thread(runtime.run, POD, env=ENV, created=5 * 10**17, started=6 * 10**17)
        await eventually(lambda: ctx.running()[ID].pid)
        (one,) = ctx.running().values()
        assert one.subject == PartialRef("ml", "train-0", "main", "uid-train-0", ID)
        assert (one.pid, one.cgroup) == (4321, f"/kubepods/{ID}")
        assert one.started is not None
        assert one.started.wall_ns == 6 * 10**17
        assert ctx.devices() == {ID: [A]}
        await in_thread(runtime.end, POD, ID)
        await ctx.until()
    (plugin,) = runtime.connections
    assert plugin.mask == 0x0656
    assert plugin.registered == ("podgpu", "90")


async def test_the_claims_of_a_container_are_reported_before_it_starts(
    runtime: FakeRuntime,
) -> None:
    """So that usage counts from a sample that was taken before the container starts."""
    async with running_source(runtime.path) as ctx:
        await connected(ctx)
        await in_thread(
            runtime.notify, "PostCreateContainer", POD, wire.container(env=ENV, created=1)
        )
        (created,) = await ctx.wait_for(ContainerStarted)
        assert (created.container.pid, created.container.started) == (None, None)
        assert ctx.devices() == {ID: [A]}
        container = wire.container(env=ENV, pid=5, state=3, created=1, started=2)
        await in_thread(runtime.notify, "PostStartContainer", POD, container)
        (_, started) = await ctx.wait_for(ContainerStarted, 2)
        assert started.container.pid == 5
        assert started.container.claims == created.container.claims


async def test_older_runtimes_use_one_method_for_most_events(tmp_path: Path) -> None:
    with FakeRuntime(tmp_path / "nri.sock", methods=False) as runtime:
        async with running_source(runtime.path) as ctx:
            await connected(ctx)
            await in_thread(runtime.run, POD, env=ENV)
            await eventually(lambda: ctx.running()[ID].pid)
            await in_thread(runtime.notify, "StopPodSandbox", POD)
            await ctx.until()
        assert runtime.dropped == []


async def test_containers_that_run_already_are_received_in_several_messages(
    runtime: FakeRuntime,
) -> None:
    """64 pods with 200 kB of environment each are 13 MB: four messages of three frames."""
    runtime.chunk = 20
    for number in range(64):
        pod, device = f"p{number}", f"NVIDIA_VISIBLE_DEVICES={number % 8}"
        runtime.pods[pod] = wire.pod(pod)
        runtime.containers[pod] = wire.container(pod, env=[device, *BIG], pid=number + 1, state=3)
    async with running_source(runtime.path) as ctx:
        listed = await connected(ctx)
        assert len(listed.containers) == 64
        assert {one.pid for one in listed.containers} == set(range(1, 65))
        assert len(ctx.events) == 1
        assert ctx.devices()["p63.main"] == ["7"]


async def test_events_during_synchronization_are_not_lost(runtime: FakeRuntime) -> None:
    runtime.chunk = 1
    runtime.pods["train-0"] = POD
    for name in ("main", "side", "late"):
        runtime.containers[name] = wire.container(name=name)
    started = wire.container(pid=9, state=3)
    runtime.meanwhile = [
        ("PostStartContainer", wire.subject(POD, started)),
        ("StopContainer", wire.subject(POD, wire.container(name="side"))),
    ]
    async with running_source(runtime.path) as ctx:
        await connected(ctx)
        pids = {key: one.pid for key, one in ctx.running().items()}
        assert pids == {ID: 9, "train-0.late": None}


@pytest.mark.slow
async def test_many_short_containers_are_all_reported(runtime: FakeRuntime) -> None:
    async with running_source(runtime.path) as ctx:
        await connected(ctx)

        def churn() -> None:
            for number in range(200):
                runtime.run(POD, key=f"c{number}", env=BIG if number % 10 == 0 else ENV)
                if number >= 5:
                    runtime.end(POD, f"c{number - 5}")

        await in_thread(churn)
        await ctx.until(*(f"c{number}" for number in range(195, 200)))
        assert runtime.dropped == []
    assert runtime.connections[0].slowest < 1


class FastClock(SystemClock):
    """Half a minute passes in 30 ms."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 1000)


async def test_the_list_of_containers_is_confirmed_periodically(runtime: FakeRuntime) -> None:
    runtime.pods["train-0"] = POD
    runtime.containers[ID] = wire.container(pid=1, state=3)
    ctx = TrackingContext()
    ctx.clock = FastClock()
    async with running_source(runtime.path, ctx, max_age=60):
        confirmations = await ctx.wait_for(ContainersReplaced, 5)
        # The same container object, so that the join compares no contents.
        assert len({id(one) for event in confirmations for one in event.containers}) == 1
        assert confirmations[0].good_for_ns == 60 * 10**9
        await in_thread(runtime.run, POD, "side")
        await eventually(lambda: len(ctx.running()) == 2)
        count = len(ctx.events)
        await eventually(lambda: len(ctx.events) > count + 2)
        assert len(ctx.running()) == 2


async def test_the_source_reconnects_after_a_restart_of_the_runtime(runtime: FakeRuntime) -> None:
    async with running_source(runtime.path) as ctx:
        await connected(ctx)
        await in_thread(runtime.run, POD, "stays", pid=7)
        await in_thread(runtime.run, POD, "goes")
        await eventually(lambda: len(ctx.running()) == 2)
        before = ctx.running()["train-0.stays"]
        runtime.stop()
        await eventually(lambda: len(ctx.failures) >= 2)
        reasons = [str(error) for error in ctx.failures]
        assert reasons[0] == f"{runtime.path}: the runtime closed the connection"
        assert set(reasons[1:]) == {
            f"{runtime.path}: no process listens on the socket: the container runtime is down"
        }
        del runtime.containers["train-0.goes"]
        runtime.start()
        await ctx.until("train-0.stays")
        assert ctx.running()["train-0.stays"] == before
        await in_thread(runtime.run, POD, "new")
        await ctx.until("train-0.new", "train-0.stays")


async def test_the_gpu_that_koordinator_chose_is_injected(runtime: FakeRuntime) -> None:
    annotation = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":3}]}'}
    pod = wire.pod(annotations=annotation)
    async with running_source(runtime.path, inject="koordinator") as ctx:
        await connected(ctx)
        claim = Claim(
            PartialRef("ml", "train-0", "", "uid-train-0"),
            (RawDeviceId("minor", "3"),),
            None,
            None,
            Origin(Evidence.SCHEDULER_ANNOTATION, next(iter(annotation))),
        )
        ctx.accepted.gpus = {3: Gpu("GPU-3", False, frozenset())}
        ctx.accepted.put("pods", Pod(PodInfo("uid-train-0", "ml", "train-0"), claims=(claim,)))
        (response,) = await in_thread(runtime.run, pod)
        assert wire.one(wire.one(response, 1), 4) == wire.message(
            {1: "NVIDIA_VISIBLE_DEVICES", 2: "3"}
        )
        assert runtime.plugins[0].mask == 0x0656 | 1 << EVENTS.index("CreateContainer")


async def test_the_plugin_registers_with_the_name_and_index_of_the_options(
    runtime: FakeRuntime,
) -> None:
    async with running_source(runtime.path, index="05", name="gpus.a+b"):
        await in_thread(runtime.wait_plugin)
    assert runtime.connections[0].registered == ("gpus.a+b", "05")


async def test_an_invalid_annotation_is_logged_once(
    runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    pod = wire.pod(annotations={"scheduling.koordinator.sh/device-allocated": "no JSON"})
    async with running_source(runtime.path, inject="koordinator") as ctx:
        await connected(ctx)
        await in_thread(runtime.run, pod)
        await in_thread(runtime.run, pod, "side")
        await eventually(lambda: len(ctx.running()) == 2)
        await in_thread(runtime.end, pod, ID)
        await ctx.wait_for(ContainerStopped)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert 'expected JSON, found "no JSON"' in warnings[0]
