"""Who uses the devices: looked at on a cadence of its own, and told as it is."""

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from pipeline.model import NS, DevicesDiscovered, DeviceUse, PartialRef, ProcessUse
from sources.nvml.process_sampler import VALIDITY_INTERVALS
from tests.fakes.nvml import ALL_ONES_64, FakeNvml, Load, Proc, Ramp, Sample, h100s
from tests.sources.nvml.harness import GPU, errors, options, rounds, running, until
from tests.sources.nvml.looks import looking, looks, next_looks, uses
from tests.sources.nvml.fake_procfs import OWNER, TICKS
from tests.sources.nvml.fake_procfs import Proc as Procfs
from tests.support.contexts import FakeSourceContext

HERE = os.getpid()
GIB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Procfs:
    """A host's procfs with its first process, and one of a pod's."""
    made = Procfs(tmp_path / "proc")
    made.run(1, cgroup="0::/init.scope\n")
    made.run(7, 100)
    return made


async def test_each_look_continues_where_the_one_before_ended(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2, processes=[Proc(HERE, GIB)], values={"energy": Ramp(1000, 100)}))
    async with running(ctx, looking()):
        await next_looks(ctx, 4)
    assert isinstance(ctx.events[0], DevicesDiscovered)
    for uuid in GPU[:2]:
        given_out = uses(ctx, uuid)
        assert given_out[0].since is None
        assert given_out[0].busy_ns is None, "nobody knows since when"
        for before, after in itertools.pairwise(given_out):
            assert after.since == before.at
            assert after.busy_ns == 0
            assert before.energy_mj is not None
            assert after.energy_mj is not None
            assert before.energy_mj <= after.energy_mj
        assert {use.good_for_ns for use in given_out} == {VALIDITY_INTERVALS * NS // 5}
        (process,) = given_out[-1].processes
        assert (process.pid, process.kind, process.memory_bytes) == (HERE, "compute", GIB)
        assert process.owner is not None


async def test_busy_time_is_that_of_the_processes_and_adds_up(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    loads = [Load(7, 30), Load(8, 60)]
    fake_nvml.set(h100s(1, processes=[Proc(7), Proc(8)], loads=loads))
    async with running(ctx, looking(every=0.5)):
        await next_looks(ctx, 6)
    given_out = uses(ctx, GPU[0])[1:]
    assert all(use.busy_ns == sum(p.busy_ns or 0 for p in use.processes) for use in given_out)
    busy = {
        pid: sum(p.busy_ns or 0 for use in given_out for p in use.processes if p.pid == pid)
        for pid in (7, 8)
    }
    assert busy[8] == 2 * busy[7], "the same stamps, to the nanosecond"
    assert given_out[0].since is not None
    passed = given_out[-1].at.mono_ns - given_out[0].since.mono_ns
    # The newest sample is up to 0.2 s old.
    assert 0.3 * (passed - 0.3 * NS) < busy[7] < 0.3 * (passed + 0.01 * NS)


async def test_a_gpu_that_no_one_uses_was_busy_for_no_time(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(7)]))
    async with running(ctx, looking()):
        await next_looks(ctx, 2)
    last = uses(ctx, GPU[0])[-1]
    assert (last.busy_ns, last.processes[0].busy_ns) == (0, 0)


MIB = 1 << 20
MEMORY: Mapping[str, tuple[Mapping[str, int | None], Mapping[str, int], tuple[int | None, ...]]] = {
    "version 2 tells what is reserved apart": (
        {"memory_used": 700 * MIB, "memory_reserved": 500 * MIB},
        {},
        (700 * MIB, 500 * MIB),
    ),
    "version 1 has it in what is used": (
        {"memory_used": 700 * MIB, "memory_reserved": 500 * MIB},
        {"nvmlDeviceGetMemoryInfo_v2": 13},
        (700 * MIB, None),
    ),
    "neither": ({}, {"nvmlDeviceGetMemoryInfo": 3}, (None, None)),
    "memory that isn't its own": ({"memory_total": ALL_ONES_64}, {}, (None, None)),
}


@pytest.mark.parametrize(("values", "wrong", "expected"), MEMORY.values(), ids=MEMORY.keys())
async def test_memory_is_all_that_is_not_free(
    fake_nvml: FakeNvml,
    values: Mapping[str, int | None],
    wrong: Mapping[str, int],
    expected: tuple[int | None, ...],
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, values=values, errors=wrong))
    async with running(ctx, looking()):
        await next_looks(ctx, 1)
    (use,) = uses(ctx, GPU[0])[:1]
    assert (use.memory_used_bytes, use.memory_reserved_bytes) == expected
    assert use.energy_mj is not None


LACKING: Mapping[str, tuple[Mapping[str, int], Mapping[str, object]]] = {
    "lists": (
        {
            f"nvmlDeviceGet{kind}RunningProcesses": 3
            for kind in ("Compute", "Graphics", "MPSCompute")
        },
        {"listed": False, "processes": (ProcessUse(HERE, None, None, "", None, 0),)},
    ),
    "utilisation": (
        {"nvmlDeviceGetProcessUtilization": 3},
        {"busy_ns": None, "processes": (ProcessUse(HERE, None, None, "compute", GIB, None),)},
    ),
    "energy": ({"nvmlDeviceGetTotalEnergyConsumption": 3}, {"energy_mj": None}),
}


@pytest.mark.parametrize(("wrong", "expected"), LACKING.values(), ids=LACKING.keys())
async def test_what_the_driver_lacks_is_unknown_and_the_rest_is_reported(
    fake_nvml: FakeNvml, proc: Procfs, wrong: Mapping[str, int], expected: Mapping[str, object]
) -> None:
    ctx = FakeSourceContext()
    # One of whom procfs knows nothing.
    fake_nvml.set(h100s(1, processes=[Proc(HERE, GIB)], errors=wrong, loads=[Load(HERE, 0.01)]))
    async with running(ctx, looking(proc=proc.root)):
        await next_looks(ctx, 3)
    last = uses(ctx, GPU[0])[-1]
    assert last.since is not None
    assert last.memory_used_bytes is not None
    for name, value in expected.items():
        assert getattr(last, name) == value
    assert errors(ctx) == {}, "nothing failed"


async def test_what_fails_is_counted_and_costs_itself_alone(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    stale = Sample(9, sm=400, timestamp=time.time_ns() // 1000 + 500_000)
    wrong = {"nvmlDeviceGetTotalEnergyConsumption": 999}
    fake_nvml.set(h100s(2).with_gpu(1, errors=wrong, samples=[stale]))
    async with running(ctx, looking()):
        await next_looks(ctx, 3)
    assert all(use.energy_mj is not None for use in uses(ctx, GPU[0]))
    assert all(use.energy_mj is None for use in uses(ctx, GPU[1]))
    assert uses(ctx, GPU[1])[-1].memory_used_bytes is not None
    assert errors(ctx)[GPU[1], "unknown"] >= 2
    assert errors(ctx)[GPU[1], "out_of_range"] >= 1
    assert not [device for device, _ in errors(ctx) if device != GPU[1]]


@pytest.mark.parametrize("others", [{"usage": False}, {"processes": False}])
async def test_no_one_looks_where_no_one_wants_it(
    fake_nvml: FakeNvml, others: Mapping[str, bool]
) -> None:
    ctx = FakeSourceContext()
    made = msgspec.structs.replace(looking(interval=0.1), **others)
    async with running(ctx, made):
        await until(lambda: len(rounds(ctx)) > 4)
    assert looks(ctx) == []
    assert "nvmlDeviceGetProcessUtilization" not in fake_nvml.calls()


async def test_a_look_makes_these_calls_and_no_more(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2, processes=[Proc(pid) for pid in range(1, 60)]))
    async with running(ctx, looking(every=60)):
        await until(lambda: rounds(ctx) and looks(ctx))
        await asyncio.sleep(1.2)  # a second round follows the first
        await until(lambda: len(rounds(ctx)) == 2)
        before = fake_nvml.calls(reset=True)
        assert before
        for count in (2, 3, 4):
            ctx.hint(GPU[0])
            await until(lambda count=count: len(looks(ctx)) == count)
        calls = fake_nvml.calls()
    forced = {"nvmlDeviceGetUtilizationRates": 3, "nvmlDeviceGetTotalEnergyConsumption": 3}
    each = {
        "nvmlDeviceGetTotalEnergyConsumption": 1,
        "nvmlDeviceGetProcessUtilization": 1,
        "nvmlDeviceGetComputeRunningProcesses_v3": 1,
        "nvmlDeviceGetGraphicsRunningProcesses_v3": 1,
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": 1,
        "nvmlDeviceGetMemoryInfo_v2": 1,
    }
    expected = Counter(forced) + Counter({name: 3 * count for name, count in each.items()})
    quiet = {name: count for name, count in calls.items() if name in expected}
    assert quiet == expected
    assert {name for name in calls if name not in expected} <= {
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetSamples",
    }


async def test_looks_do_not_wait_for_rounds_nor_rounds_for_looks(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    # A look takes longer than a round may wait.
    fake_nvml.set(h100s(4, block={"nvmlDeviceGetProcessUtilization": 0.05}))
    async with running(ctx, looking(every=0.5, interval=0.3)):
        await until(lambda: len(looks(ctx)) > 5, within=10)
    at = [given_out.readings[0].at.mono_ns for given_out in rounds(ctx)][1:]
    assert len(at) >= 5
    steps = [(after - before) / (0.3 * NS) for before, after in itertools.pairwise(at)]
    assert steps == pytest.approx([round(step) for step in steps], abs=0.45)


# -- whose the processes are ---------------------------------------------------------------------


def owners(use: DeviceUse) -> dict[int, PartialRef | None]:
    return {process.pid: process.owner for process in use.processes}


async def test_whose_a_process_is_stands_with_it(fake_nvml: FakeNvml, proc: Procfs) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(1), Proc(7), Proc(9)]))
    async with running(ctx, looking(proc=proc.root)):
        await next_looks(ctx, 2)
    given_out = uses(ctx, GPU[0])[-1]
    assert owners(given_out) == {1: PartialRef(), 7: OWNER, 9: None}
    assert [process.started for process in given_out.processes] == [100 * TICKS, 100 * TICKS, None]


async def test_one_that_ended_between_two_looks_keeps_its_owner(
    fake_nvml: FakeNvml, proc: Procfs
) -> None:
    ctx = FakeSourceContext()
    node = h100s(1, processes=[Proc(7)], loads=[Load(7, 50)])
    fake_nvml.set(node)
    async with running(ctx, looking(every=0.5, proc=proc.root)):
        await next_looks(ctx, 2)
        proc.end(7)
        fake_nvml.set(node.with_gpu(0, processes=[]))
        await until(lambda: uses(ctx, GPU[0])[-1].processes[0].kind == "")
    gone = next(use for use in uses(ctx, GPU[0]) if use.processes[0].kind == "").processes[0]
    assert gone.busy_ns is not None
    assert gone.busy_ns > 0
    assert gone == ProcessUse(7, 100 * TICKS, OWNER, "", 0, gone.busy_ns)


async def test_one_that_was_never_seen_has_none(fake_nvml: FakeNvml, proc: Procfs) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, loads=[Load(9, 50)]))
    async with running(ctx, looking(every=0.5, proc=proc.root)):
        await until(lambda: uses(ctx, GPU[0])[-1].busy_ns)
    (process,) = uses(ctx, GPU[0])[-1].processes
    assert process == ProcessUse(9, None, None, "", 0, process.busy_ns)


async def test_a_procfs_that_hangs_holds_no_one_up(
    fake_nvml: FakeNvml,
    proc: Procfs,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx = FakeSourceContext()
    monkeypatch.setattr("sources.nvml.process_sampler._LOOKUP_TIMEOUT", 0.2)
    fake_nvml.set(h100s(1, processes=[Proc(7)]))
    cgroup = proc.root / "7/cgroup"
    cgroup.unlink()
    os.mkfifo(cgroup)
    try:
        async with running(ctx, looking(interval=0.1, proc=proc.root)):
            await next_looks(ctx, 3)
            assert {one.owner for use in uses(ctx, GPU[0]) for one in use.processes} == {None}
            assert len(rounds(ctx)) > 3
            assert caplog.text.count("does not respond") == 1
            with cgroup.open("w") as pipe:
                pipe.write("0::/\n")
            cgroup.unlink()
            proc.run(7)
            await until(lambda: owners(uses(ctx, GPU[0])[-1])[7] is not None)
    finally:
        if cgroup.is_fifo():
            os.close(os.open(cgroup, os.O_RDWR))


async def test_another_place_of_procfs_is_taken_up_by_a_reload(
    fake_nvml: FakeNvml, proc: Procfs
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(7)]))
    for root, expected in ((Path("/nowhere"), {}), (proc.root, {7: OWNER})):
        before = len(looks(ctx))
        async with running(ctx, looking(proc=root)):
            await until(lambda before=before: len(looks(ctx)) > before + 1)
        assert owners(uses(ctx, GPU[0])[-1]) == expected


def test_the_default_is_the_procfs_of_this_machine() -> None:
    assert options().proc == Path("/proc")
