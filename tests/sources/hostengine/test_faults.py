"""Faults: an engine that is unreachable, restarts or hangs, and a missing or wrong library."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.base.errors import TransientError
from pipeline.model import SamplesTaken
from tests.fakes.dcgm import Card, FakeDcgm, Scenario
from tests.sources.hostengine.running import STANDARD, context, source, values
from tests.support.running import running

CARD = Card(0, values={1001: 0.5, 1004: 0.25, 1009: 1000})
READ = "dcgmEntitiesGetLatestValues"


def threads() -> int:
    return sum(thread.name == "podgpu-dcgm" for thread in threading.enumerate())


async def until_threads(count: int) -> None:
    """Wait until `count` threads of the source are left."""
    async with asyncio.timeout(5):
        while threads() != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        pytest.param(Scenario((CARD,), epoch=0), "check that nv-hostengine runs", id="unreachable"),
        pytest.param(
            Scenario((CARD,), returns={"dcgmConnect_v2": -12}), "both DCGM 3 or both", id="version"
        ),
        pytest.param(
            Scenario((CARD,), returns={"dcgmGetGpuInstanceHierarchy": -12}),
            "both DCGM 3 or both",
            id="version of a later call",
        ),
        pytest.param(Scenario((CARD,), returns={"dcgmInit": -7}), "dcgmInit", id="no init"),
        pytest.param(
            Scenario((CARD,), returns={"dcgmUpdateAllFields": -3}), "dcgmUpdateAllFields", id="odd"
        ),
        pytest.param(Scenario((CARD,), unwatchable={0: -33}), "profiling module", id="no module"),
        pytest.param(Scenario((CARD,), unwatchable={0: -38}), "fewer", id="too many fields"),
        pytest.param(Scenario((CARD,), unreadable={(1, 0): -18}), READ, id="nothing readable"),
    ],
)
async def test_an_error_names_the_fault_and_its_fix(
    fake_dcgm: FakeDcgm, scenario: Scenario, message: str
) -> None:
    fake_dcgm.set(scenario)
    with pytest.raises(TransientError, match=message) as caught:
        await source(fake_dcgm).run(context())
    assert "localhost:5555" in str(caught.value)
    await until_threads(0)
    assert fake_dcgm.inits == 0


@pytest.mark.parametrize("kind", ["none", "no library", "another library"])
async def test_the_error_of_a_missing_library_names_the_alternatives(
    fake_dcgm: FakeDcgm, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "libdcgm.so.4"
    if kind == "no library":
        path.write_text("nothing")
    if kind == "another library":
        path = Path("libc.so.6")
    with pytest.raises(TransientError) as caught:
        await source(fake_dcgm, library=path).run(context())
    for alternative in ("install libdcgm", "kind dcgm", "Hopper"):
        assert alternative in str(caught.value)
    assert caught.value.retry_after == 60


async def test_the_address_is_passed_to_the_library(fake_dcgm: FakeDcgm) -> None:
    for address in ("engine.gpu:5555", "/run/engine.sock", "unix:///run/engine.sock"):
        async with running(source(fake_dcgm, address=address), context()) as ctx:
            await ctx.wait_for(SamplesTaken)
    connects = [call for call in fake_dcgm.calls() if call.startswith("dcgmConnect_v2 ")]
    assert connects == [
        "dcgmConnect_v2 engine.gpu:5555 0 300",
        "dcgmConnect_v2 /run/engine.sock 1 300",
        "dcgmConnect_v2 /run/engine.sock 1 300",
    ]


async def test_the_source_reconnects_to_a_restarted_engine(fake_dcgm: FakeDcgm) -> None:
    engine, ctx = source(fake_dcgm), context()
    run = asyncio.create_task(engine.run(ctx))
    await ctx.wait_for(SamplesTaken)
    fake_dcgm.set(Scenario((CARD,), epoch=0))
    with pytest.raises(TransientError, match="connection invalid"):
        await run
    with pytest.raises(TransientError, match="connection invalid"):
        await engine.run(ctx)
    fake_dcgm.set(Scenario((CARD,), epoch=2))
    ctx.events.clear()
    async with running(engine, ctx):
        await ctx.wait_for(SamplesTaken)
    assert values(ctx, CARD.name) == STANDARD


async def test_a_stopped_source_disconnects_and_shuts_the_library_down(fake_dcgm: FakeDcgm) -> None:
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
        assert fake_dcgm.inits == 1
    await until_threads(0)
    assert fake_dcgm.inits == 0
    assert fake_dcgm.calls()[-2:] == ["dcgmDisconnect", "dcgmShutdown"]


async def test_the_library_stays_initialised_while_another_source_uses_it(
    fake_dcgm: FakeDcgm,
) -> None:
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
        async with running(source(fake_dcgm, address="other:5555"), context()) as other:
            await other.wait_for(SamplesTaken)
        await until_threads(1)
        assert fake_dcgm.inits == 1
    await until_threads(0)
    assert fake_dcgm.inits == 0


class TestACallThatHangs:
    @pytest.mark.slow
    @pytest.mark.parametrize("call", ["dcgmConnect_v2", "dcgmWatchFields", READ])
    async def test_it_holds_one_thread_however_often_the_source_restarts(
        self, fake_dcgm: FakeDcgm, call: str
    ) -> None:
        fake_dcgm.set(Scenario((CARD,), hangs=(call,)))
        engine, ctx = source(fake_dcgm), context()
        with pytest.raises(TransientError, match=r"takes more than .* s"):
            await engine.run(ctx)
        for _ in range(2):
            with pytest.raises(TransientError, match="still hangs"):
                await engine.run(ctx)
        assert threads() == 1
        fake_dcgm.set(Scenario((CARD,)))
        await until_threads(0)
        ctx.events.clear()
        async with running(engine, ctx):
            await ctx.wait_for(SamplesTaken)
        assert values(ctx, CARD.name) == STANDARD
        await until_threads(0)
        assert fake_dcgm.inits == 0

    async def test_stopping_does_not_wait_for_it(self, fake_dcgm: FakeDcgm) -> None:
        engine, ctx = source(fake_dcgm, timeout=Duration.parse("1h")), context()
        task = asyncio.create_task(engine.run(ctx))
        await ctx.wait_for(SamplesTaken)
        fake_dcgm.set(Scenario((CARD,), hangs=(READ,)))
        async with asyncio.timeout(5):
            while fake_dcgm.calls()[-1] != READ:
                await asyncio.sleep(0.01)
        started = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert time.monotonic() - started < 0.5
        fake_dcgm.set(Scenario((CARD,)))
        await until_threads(0)
        assert fake_dcgm.inits == 0
