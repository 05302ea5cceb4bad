"""Usage samples: processes, busy time, memory and energy of devices at their own interval."""

import asyncio
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from pipeline.model import NS, DevicesDiscovered, DeviceUse, PartialRef, ProcessUse
from sources.nvml.library import Library
from sources.nvml.reader_parts import VALIDITY_INTERVALS
from tests.fakes.nvml import ALL_ONES_64, FakeNvml, Load, Proc, Ramp, Sample, h100s
from tests.sources.nvml.fake_procfs import OWNER, TICKS
from tests.sources.nvml.fake_procfs import Proc as Procfs
from tests.sources.nvml.harness import GPU, errors, options, rounds, running, until
from tests.sources.nvml.usage_helpers import next_usage_samples, usage_options, usage_samples, uses
from tests.support.contexts import FakeSourceContext

HERE = os.getpid()
GIB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Procfs:
    """Return a host's procfs with its first process and a process of a pod."""
    procfs = Procfs(tmp_path / "proc")
    procfs.run(1, cgroup="0::/init.scope\n")
    procfs.run(7, 100)
    return procfs


@pytest.mark.slow
async def test_each_sample_starts_where_the_one_before_ended(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2, processes=[Proc(HERE, GIB)], values={"energy": Ramp(1000, 100)}))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 4)
    assert isinstance(ctx.events[0], DevicesDiscovered)
    for uuid in GPU[:2]:
        reported = uses(ctx, uuid)
        assert reported[0].since is None
        assert reported[0].busy_ns is None, "the start of the busy time is unknown"
        for before, after in itertools.pairwise(reported):
            assert after.since == before.at
            assert after.busy_ns == 0
            assert before.energy_mj is not None
            assert after.energy_mj is not None
            assert before.energy_mj <= after.energy_mj
        assert {use.good_for_ns for use in reported} == {VALIDITY_INTERVALS * NS // 5}
        (process,) = reported[-1].processes
        assert (process.pid, process.kind, process.memory_bytes) == (HERE, "compute", GIB)
        assert process.owner is not None


@pytest.mark.slow
async def test_busy_time_is_the_sum_of_the_processes(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    loads = [Load(7, 30), Load(8, 60)]
    fake_nvml.set(h100s(1, processes=[Proc(7), Proc(8)], loads=loads))
    async with running(ctx, usage_options(every=0.5)):
        await next_usage_samples(ctx, 6)
    reported = uses(ctx, GPU[0])[1:]
    assert all(use.busy_ns == sum(p.busy_ns or 0 for p in use.processes) for use in reported)
    busy = {
        pid: sum(p.busy_ns or 0 for use in reported for p in use.processes if p.pid == pid)
        for pid in (7, 8)
    }
    assert busy[8] == 2 * busy[7], "both have the same timestamps, so this is exact"
    assert reported[0].since is not None
    passed = reported[-1].at.mono_ns - reported[0].since.mono_ns
    # The driver's newest sample is up to 0.2 s old.
    assert 0.3 * (passed - 0.3 * NS) < busy[7] < 0.3 * (passed + 0.01 * NS)


async def test_a_gpu_with_an_idle_process_has_a_busy_time_of_0(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(7)]))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 2)
    last = uses(ctx, GPU[0])[-1]
    assert (last.busy_ns, last.processes[0].busy_ns) == (0, 0)


MIB = 1 << 20
MEMORY: Mapping[str, tuple[Mapping[str, int | None], Mapping[str, int], tuple[int | None, ...]]] = {
    "version 2 reports reserved memory separately": (
        {"memory_used": 700 * MIB, "memory_reserved": 500 * MIB},
        {},
        (700 * MIB, 500 * MIB),
    ),
    "version 1 includes reserved memory in used memory": (
        {"memory_used": 700 * MIB, "memory_reserved": 500 * MIB},
        {"nvmlDeviceGetMemoryInfo_v2": 13},
        (700 * MIB, None),
    ),
    "both versions fail": ({}, {"nvmlDeviceGetMemoryInfo": 3}, (None, None)),
    "a device without its own memory": ({"memory_total": ALL_ONES_64}, {}, (None, None)),
}


@pytest.mark.parametrize(
    ("values", "errors_of_calls", "expected"), MEMORY.values(), ids=MEMORY.keys()
)
async def test_used_memory_includes_reserved_memory(
    fake_nvml: FakeNvml,
    values: Mapping[str, int | None],
    errors_of_calls: Mapping[str, int],
    expected: tuple[int | None, ...],
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, values=values, errors=errors_of_calls))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 1)
    (use,) = uses(ctx, GPU[0])[:1]
    assert (use.memory_used_bytes, use.memory_reserved_bytes) == expected
    assert use.energy_mj is not None


UNSUPPORTED: Mapping[str, tuple[Mapping[str, int], Mapping[str, object]]] = {
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("errors_of_calls", "expected"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys()
)
async def test_unsupported_values_are_unknown_and_the_rest_is_reported(
    fake_nvml: FakeNvml,
    proc: Procfs,
    errors_of_calls: Mapping[str, int],
    expected: Mapping[str, object],
) -> None:
    ctx = FakeSourceContext()
    # This process is not in the fake procfs.
    fake_nvml.set(
        h100s(1, processes=[Proc(HERE, GIB)], errors=errors_of_calls, loads=[Load(HERE, 0.01)])
    )
    async with running(ctx, usage_options(proc=proc.root)):
        await next_usage_samples(ctx, 3)
    last = uses(ctx, GPU[0])[-1]
    assert last.since is not None
    assert last.memory_used_bytes is not None
    for name, value in expected.items():
        assert getattr(last, name) == value
    assert errors(ctx) == {}, "nothing failed"


@pytest.mark.slow
async def test_a_failed_value_is_counted_and_affects_no_other(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    stale = Sample(9, sm=400, timestamp=time.time_ns() // 1000 + 500_000)
    wrong = {"nvmlDeviceGetTotalEnergyConsumption": 999}
    fake_nvml.set(h100s(2).with_gpu(1, errors=wrong, samples=[stale]))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 3)
    assert all(use.energy_mj is not None for use in uses(ctx, GPU[0]))
    assert all(use.energy_mj is None for use in uses(ctx, GPU[1]))
    assert uses(ctx, GPU[1])[-1].memory_used_bytes is not None
    assert errors(ctx)[GPU[1], "unknown"] >= 2
    assert errors(ctx)[GPU[1], "out_of_range"] >= 1
    assert not [device for device, _ in errors(ctx) if device != GPU[1]]


@pytest.mark.slow
@pytest.mark.parametrize("others", [{"usage": False}, {"processes": False}])
async def test_no_samples_are_taken_if_usage_or_processes_is_off(
    fake_nvml: FakeNvml, others: Mapping[str, bool]
) -> None:
    ctx = FakeSourceContext()
    configured = msgspec.structs.replace(usage_options(interval=0.1), **others)
    async with running(ctx, configured):
        await until(lambda: len(rounds(ctx)) > 4)
    assert usage_samples(ctx) == []
    assert "nvmlDeviceGetProcessUtilization" not in fake_nvml.calls()


@pytest.mark.slow
async def test_samples_have_processes_also_if_these_are_no_readings(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(HERE, GIB)]))
    async with running(ctx, usage_options(interval=0.1, process_readings=False)):
        await next_usage_samples(ctx)
        await until(lambda: len(rounds(ctx)) > 2)
    (process,) = uses(ctx, GPU[0])[-1].processes
    assert (process.pid, process.memory_bytes) == (HERE, GIB)
    assert not any(sampled.processes for sampled in rounds(ctx))
    assert not any(one.field == "processes" for sampled in rounds(ctx) for one in sampled.readings)


@pytest.mark.slow
async def test_a_sample_makes_exactly_these_calls(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2, processes=[Proc(pid) for pid in range(1, 60)]))
    async with running(ctx, usage_options(every=60)):
        await until(lambda: rounds(ctx) and usage_samples(ctx))
        await asyncio.sleep(1.2)  # a second round follows the first
        await until(lambda: len(rounds(ctx)) == 2)
        before = fake_nvml.calls(reset=True)
        assert before
        for count in (2, 3, 4):
            ctx.hint(GPU[0])
            await until(lambda count=count: len(usage_samples(ctx)) == count)
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
    of_samples = {name: count for name, count in calls.items() if name in expected}
    assert of_samples == expected
    assert {name for name in calls if name not in expected} <= {
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetSamples",
    }


@pytest.mark.slow
async def test_samples_and_rounds_do_not_wait_for_each_other(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    # A sample of four GPUs takes 0.2 s.
    fake_nvml.set(h100s(4, block={"nvmlDeviceGetProcessUtilization": 0.05}))
    async with running(ctx, usage_options(every=0.5, interval=0.3)):
        await until(lambda: len(usage_samples(ctx)) > 5, within=10)
    at = [samples.readings[0].at.mono_ns for samples in rounds(ctx)][1:]
    assert len(at) >= 5
    steps = [(after - before) / (0.3 * NS) for before, after in itertools.pairwise(at)]
    assert steps == pytest.approx([round(step) for step in steps], abs=0.45)


# -- owners of the processes ---------------------------------------------------------------------


def owners(use: DeviceUse) -> dict[int, PartialRef | None]:
    return {process.pid: process.owner for process in use.processes}


async def test_each_process_has_its_owner(fake_nvml: FakeNvml, proc: Procfs) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(1), Proc(7), Proc(9)]))
    async with running(ctx, usage_options(proc=proc.root)):
        await next_usage_samples(ctx, 2)
    reported = uses(ctx, GPU[0])[-1]
    assert owners(reported) == {1: PartialRef(), 7: OWNER, 9: None}
    assert [process.started for process in reported.processes] == [100 * TICKS, 100 * TICKS, None]


@pytest.mark.slow
async def test_a_process_that_ended_between_two_samples_keeps_its_owner(
    fake_nvml: FakeNvml, proc: Procfs
) -> None:
    ctx = FakeSourceContext()
    node = h100s(1, processes=[Proc(7)], loads=[Load(7, 50)])
    fake_nvml.set(node)
    async with running(ctx, usage_options(every=0.5, proc=proc.root)):
        await next_usage_samples(ctx, 2)
        proc.end(7)
        fake_nvml.set(node.with_gpu(0, processes=[]))
        await until(lambda: uses(ctx, GPU[0])[-1].processes[0].kind == "")
    gone = next(use for use in uses(ctx, GPU[0]) if use.processes[0].kind == "").processes[0]
    assert gone.busy_ns is not None
    assert gone.busy_ns > 0
    assert gone == ProcessUse(7, 100 * TICKS, OWNER, "", 0, gone.busy_ns)


@pytest.mark.slow
async def test_a_process_that_was_never_seen_has_no_owner(
    fake_nvml: FakeNvml, proc: Procfs
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, loads=[Load(9, 50)]))
    async with running(ctx, usage_options(every=0.5, proc=proc.root)):
        await until(lambda: uses(ctx, GPU[0])[-1].busy_ns)
    (process,) = uses(ctx, GPU[0])[-1].processes
    assert process == ProcessUse(9, None, None, "", 0, process.busy_ns)


@pytest.mark.slow
async def test_a_hanging_procfs_does_not_delay_samples_and_rounds(
    fake_nvml: FakeNvml,
    proc: Procfs,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx = FakeSourceContext()
    monkeypatch.setattr("sources.nvml.usage_scheduler._LOOKUP_TIMEOUT", 0.2)
    fake_nvml.set(h100s(1, processes=[Proc(7)]))
    cgroup = proc.root / "7/cgroup"
    cgroup.unlink()
    os.mkfifo(cgroup)
    try:
        async with running(ctx, usage_options(interval=0.1, proc=proc.root)):
            await next_usage_samples(ctx, 3)
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


@pytest.mark.slow
async def test_a_reload_uses_a_changed_procfs_path(fake_nvml: FakeNvml, proc: Procfs) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(7)]))
    for root, expected in ((Path("/nowhere"), {}), (proc.root, {7: OWNER})):
        before = len(usage_samples(ctx))
        async with running(ctx, usage_options(proc=root)):
            await until(lambda before=before: len(usage_samples(ctx)) > before + 1)
        assert owners(uses(ctx, GPU[0])[-1]) == expected


def test_the_default_procfs_is_that_of_this_machine() -> None:
    assert options().proc == Path("/proc")


async def test_no_function_of_the_library_is_looked_up_by_the_event_loop(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[threading.Thread] = set()
    look_up = Library.function

    def recorded(library: Library, *names: str) -> Callable[..., int]:
        threads.add(threading.current_thread())
        return look_up(library, *names)

    monkeypatch.setattr(Library, "function", recorded)
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 2)
    assert threads
    assert threading.main_thread() not in threads
