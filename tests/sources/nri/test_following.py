"""From a runtime's words to events."""

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
from sources.nri.messages import Event
from tests.fakes.nri import FakeRuntime, wire
from tests.sources.nri.running import Following, aside, eventually, following

A = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"
POD = wire.pod()
ENV = [f"NVIDIA_VISIBLE_DEVICES={A}"]
ID = "train-0.main"
BIG = [f"FILLER={'x' * 200_000}"]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with FakeRuntime(tmp_path / "nri.sock") as made:
        yield made


async def connected(ctx: Following, times: int = 1) -> ContainersReplaced:
    return (await ctx.wait_for(ContainersReplaced, times))[-1]


async def test_a_container_comes_and_goes(runtime: FakeRuntime) -> None:
    async with following(runtime.path) as ctx:
        assert (await connected(ctx)).containers == ()
        await aside(runtime.run, POD, env=ENV, created=5 * 10**17, started=6 * 10**17)
        await eventually(lambda: ctx.running()[ID].pid)
        (one,) = ctx.running().values()
        assert one.subject == PartialRef("ml", "train-0", "main", "uid-train-0", ID)
        assert (one.pid, one.cgroup) == (4321, f"/kubepods/{ID}")
        assert one.started is not None
        assert one.started.wall_ns == 6 * 10**17
        assert ctx.devices() == {ID: [A]}
        await aside(runtime.end, POD, ID)
        await ctx.until()
    (plugin,) = runtime.connections
    assert plugin.mask == 0x0656
    assert plugin.registered == ("podgpu", "90")


async def test_what_it_was_given_is_reported_before_it_runs(runtime: FakeRuntime) -> None:
    """So that its first moments are counted from a reading that was taken before them."""
    async with following(runtime.path) as ctx:
        await connected(ctx)
        await aside(runtime.tell, "PostCreateContainer", POD, wire.container(env=ENV, created=1))
        (made,) = await ctx.wait_for(ContainerStarted)
        assert (made.container.pid, made.container.started) == (None, None)
        assert ctx.devices() == {ID: [A]}
        container = wire.container(env=ENV, pid=5, state=3, created=1, started=2)
        await aside(runtime.tell, "PostStartContainer", POD, container)
        (_, started) = await ctx.wait_for(ContainerStarted, 2)
        assert started.container.pid == 5
        assert started.container.claims == made.container.claims


async def test_older_runtimes_have_one_method_for_most_events(tmp_path: Path) -> None:
    with FakeRuntime(tmp_path / "nri.sock", methods=False) as runtime:
        async with following(runtime.path) as ctx:
            await connected(ctx)
            await aside(runtime.run, POD, env=ENV)
            await eventually(lambda: ctx.running()[ID].pid)
            await aside(runtime.tell, "StopPodSandbox", POD)
            await ctx.until()
        assert runtime.dropped == []


async def test_what_runs_already_is_reported_in_parts(runtime: FakeRuntime) -> None:
    """64 pods with 200 kB of environment each are 13 MB: four messages of three frames."""
    runtime.chunk = 20
    for number in range(64):
        pod, device = f"p{number}", f"NVIDIA_VISIBLE_DEVICES={number % 8}"
        runtime.pods[pod] = wire.pod(pod)
        runtime.containers[pod] = wire.container(pod, env=[device, *BIG], pid=number + 1, state=3)
    async with following(runtime.path) as ctx:
        whole = await connected(ctx)
        assert len(whole.containers) == 64
        assert {one.pid for one in whole.containers} == set(range(1, 65))
        assert len(ctx.events) == 1
        assert ctx.devices()["p63.main"] == ["7"]


async def test_what_happens_meanwhile_is_not_lost(runtime: FakeRuntime) -> None:
    runtime.chunk = 1
    runtime.pods["train-0"] = POD
    for name in ("main", "side", "late"):
        runtime.containers[name] = wire.container(name=name)
    started = wire.container(pid=9, state=3)
    runtime.meanwhile = [
        ("PostStartContainer", wire.subject(POD, started)),
        ("StopContainer", wire.subject(POD, wire.container(name="side"))),
    ]
    async with following(runtime.path) as ctx:
        await connected(ctx)
        pids = {key: one.pid for key, one in ctx.running().items()}
        assert pids == {ID: 9, "train-0.late": None}


async def test_many_come_and_go(runtime: FakeRuntime) -> None:
    async with following(runtime.path) as ctx:
        await connected(ctx)

        def churn() -> None:
            for number in range(200):
                runtime.run(POD, key=f"c{number}", env=BIG if number % 10 == 0 else ENV)
                if number >= 5:
                    runtime.end(POD, f"c{number - 5}")

        await aside(churn)
        await ctx.until(*(f"c{number}" for number in range(195, 200)))
        assert runtime.dropped == []
    assert runtime.connections[0].slowest < 1


class Hasty(SystemClock):
    """Half a minute passes in no time."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 1000)


async def test_it_confirms_its_word(runtime: FakeRuntime) -> None:
    runtime.pods["train-0"] = POD
    runtime.containers[ID] = wire.container(pid=1, state=3)
    ctx = Following()
    ctx.clock = Hasty()
    async with following(runtime.path, ctx, max_age=60):
        said = await ctx.wait_for(ContainersReplaced, 5)
        # The same object, which costs the join nothing.
        assert len({id(event.containers) for event in said}) == 1
        assert said[0].good_for_ns == 60 * 10**9
        await aside(runtime.run, POD, "side")
        await eventually(lambda: len(ctx.running()) == 2)
        count = len(ctx.events)
        await eventually(lambda: len(ctx.events) > count + 2)
        assert len(ctx.running()) == 2


async def test_the_runtime_is_restarted(runtime: FakeRuntime) -> None:
    async with following(runtime.path) as ctx:
        await connected(ctx)
        await aside(runtime.run, POD, "stays", pid=7)
        await aside(runtime.run, POD, "goes")
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
        await aside(runtime.run, POD, "new")
        await ctx.until("train-0.new", "train-0.stays")


async def test_koordinators_choice_is_injected(runtime: FakeRuntime) -> None:
    annotation = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":3}]}'}
    pod = wire.pod(annotations=annotation)
    async with following(runtime.path, inject="koordinator") as ctx:
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
        (answer,) = await aside(runtime.run, pod)
        assert wire.one(wire.one(answer, 1), 4) == wire.message(
            {1: "NVIDIA_VISIBLE_DEVICES", 2: "3"}
        )
        assert runtime.plugins[0].mask == 0x0656 | Event.CREATE_CONTAINER.bit


async def test_the_options_say_as_what_it_registers(runtime: FakeRuntime) -> None:
    async with following(runtime.path, index="05", name="gpus.a+b"):
        await aside(runtime.wait_plugin)
    assert runtime.connections[0].registered == ("gpus.a+b", "05")


async def test_what_is_wrong_is_logged_once(
    runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    pod = wire.pod(annotations={"scheduling.koordinator.sh/device-allocated": "no JSON"})
    async with following(runtime.path, inject="koordinator") as ctx:
        await connected(ctx)
        await aside(runtime.run, pod)
        await aside(runtime.run, pod, "side")
        await eventually(lambda: len(ctx.running()) == 2)
        await aside(runtime.end, pod, ID)
        await ctx.wait_for(ContainerStopped)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert 'expected JSON, found "no JSON"' in warnings[0]
