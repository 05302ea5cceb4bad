"""Impossible values of counters and gauges become unknown, are counted and affect nothing else."""

import pytest

from pipeline.model import NS
from tests.fakes.nvml import FakeNvml, Load, Proc, Ramp, h100s
from tests.sources.nvml.harness import GPU, errors, fields, next_rounds, options, running, until
from tests.sources.nvml.usage_helpers import next_usage_samples, usage_options, uses
from tests.support.contexts import FakeSourceContext

LIFETIME_MJ = 10**12
PLAUSIBLE = Ramp(LIFETIME_MJ, 300_000)
MEMORY = {
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_free_bytes",
    "memory_reserved_bytes",
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0, 808_334_905, 2 * LIFETIME_MJ, (1 << 62) + 1])
async def test_t5_an_implausible_energy_counter_is_unknown_and_counted(
    fake_nvml: FakeNvml, wrong: int
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, values={"energy": PLAUSIBLE}))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 2)
        fake_nvml.set(h100s(1, values={"energy": wrong}))
        await next_usage_samples(ctx, 3)
        fake_nvml.set(h100s(1, values={"energy": PLAUSIBLE}))
        await next_usage_samples(ctx, 3)
    reported = uses(ctx, GPU[0])
    unknown = [use for use in reported if use.energy_mj is None]
    assert len(unknown) >= 2
    assert errors(ctx)[GPU[0], "out_of_range"] == len(unknown)
    known = [use for use in reported if use.energy_mj is not None]
    assert known[-1].at > unknown[-1].at
    grown = (known[-1].energy_mj or 0) - (known[0].energy_mj or 0)
    passed = known[0].at.seconds_until(known[-1].at)
    assert grown == pytest.approx(300_000 * passed, rel=0.02, abs=5000)
    assert all(use.since is not None for use in reported[1:]), "the other values continue"


@pytest.mark.slow
async def test_t5_energy_is_plausible_within_a_margin_and_under_a_raised_limit(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, values={"energy": Ramp(0, 900_000), "enforced_power_limit": 700_000}))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 3)
        # This step is more energy than the old limit allows in one second.
        step = {"energy": Ramp(2_000_000, 900_000), "enforced_power_limit": 2_000_000}
        fake_nvml.set(h100s(1, values=step))
        await next_usage_samples(ctx, 3)
    assert all(use.energy_mj is not None for use in uses(ctx, GPU[0]))
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_t6_busy_time_of_two_full_loads_is_at_most_the_elapsed_time(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    procs, loads = [Proc(7), Proc(8)], [Load(7, 100), Load(8, 100)]
    fake_nvml.set(h100s(1, processes=procs, loads=loads))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 10)
    reported = uses(ctx, GPU[0])[1:]
    for use in reported:
        assert use.since is not None
        assert use.busy_ns is not None
        assert use.busy_ns <= use.at.mono_ns - use.since.mono_ns
        assert use.busy_ns == sum(one.busy_ns or 0 for one in use.processes)
    assert reported[0].since is not None
    passed = reported[-1].at.mono_ns - reported[0].since.mono_ns
    # The driver's newest sample is up to 0.2 s old.
    assert passed - 0.3 * NS < sum(use.busy_ns or 0 for use in reported) <= passed
    by_pid = [
        sum(p.busy_ns or 0 for use in reported for p in use.processes if p.pid == x) for x in (7, 8)
    ]
    assert abs(by_pid[0] - by_pid[1]) <= len(reported)


async def test_process_memory_above_the_device_s_is_unknown_and_counted(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, processes=[Proc(7, 1 << 60), Proc(8, 1 << 30)]))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 2)
    (first,) = uses(ctx, GPU[0])[:1]
    assert [one.memory_bytes for one in first.processes] == [None, 1 << 30]
    assert errors(ctx)[GPU[0], "out_of_range"] >= 1


async def test_t22_a_gpu_without_its_own_memory_has_no_memory_fields(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    none = {"memory_total": 0, "memory_used": 0, "memory_reserved": 0}
    fake_nvml.set(h100s(2).with_gpu(1, values={**h100s(1).gpus[0].values, **none}))
    async with running(ctx, usage_options(interval=0.2)):
        samples = await next_rounds(ctx)
        await until(lambda: uses(ctx, GPU[1]))
    assert fields(samples, GPU[0]) - fields(samples, GPU[1]) == MEMORY
    use = uses(ctx, GPU[1])[0]
    assert (use.memory_used_bytes, use.memory_reserved_bytes) == (None, None)
    assert errors(ctx) == {}


async def test_t22_a_gpu_without_its_own_memory_has_none_by_the_older_call(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    none = {"memory_total": 0, "memory_used": 0}
    lacking = {"nvmlDeviceGetMemoryInfo_v2": 13}
    fake_nvml.set(h100s(1, values=none, errors=lacking))
    async with running(ctx, options()):
        assert not fields(await next_rounds(ctx), GPU[0]) & MEMORY
    assert errors(ctx) == {}
