"""Minimum, mean and maximum of the driver's own samples, which are taken between two rounds."""

import time
from dataclasses import replace

import pytest

from config.value_types import Duration
from pipeline.fields import FieldPlan, in_group
from pipeline.model import NS, Instant, Reading, SamplesTaken
from sources.nvml.event_counts import ClockEvents
from sources.nvml.library import Library
from sources.nvml.options import Options
from sources.nvml.reader_parts import GpuReadings, ReadingRequest, ReadTarget
from sources.nvml.sample_statistics import Ring, rings
from tests.fakes.nvml import ALL_ONES_32, FakeNvml, Gpu, Sampled, h100, h100s, slices
from tests.fakes.nvml.scenario import FieldType, Scenario
from tests.sources.nvml.harness import (
    GPU,
    errors,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext

POWER = 0
CLOCKS = {5: Sampled(1635), 6: Sampled(2619)}
WINDOW = Duration(1)


def context(*names: str) -> FakeSourceContext:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up", *(names or in_group("statistics"))])
    return ctx


def node(**changes: object) -> Scenario:
    return Scenario(gpus=[h100(0, **changes)])


def readings(samples: SamplesTaken, field: str, uuid: str = GPU[0]) -> list[Reading]:
    return [r for r in samples.readings if r.field == field and r.device == uuid]


async def test_minimum_mean_and_maximum_have_the_unit_of_the_field(fake_nvml: FakeNvml) -> None:
    ctx = context()
    kinds = {1: Sampled(40), 2: Sampled(30), 3: Sampled(20), 4: Sampled(10), **CLOCKS}
    fake_nvml.set(node(sampled={POWER: Sampled(689_480, period=0.02, room=120), **kinds}))
    async with running(ctx):
        samples = await next_rounds(ctx)
    expected = {
        "power_{}_watts": 689.48,
        "gpu_utilization_{}_percent": 40,
        "memory_copy_utilization_{}_percent": 30,
        "encoder_utilization_{}_percent": 20,
        "decoder_utilization_{}_percent": 10,
        "sm_clock_{}_mhz": 1635,
        "memory_clock_{}_mhz": 2619,
    }
    assert values(samples, GPU[0]) == {"gpu_up": 1} | {
        name.format(which): pytest.approx(value)
        for name, value in expected.items()
        for which in ("min", "mean", "max")
    }
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_a_peak_between_two_rounds_is_seen_during_the_whole_window(
    fake_nvml: FakeNvml,
) -> None:
    ctx = context("power_min_watts", "power_mean_watts", "power_max_watts")
    pulse = Sampled(100_000, pulse=(300_000, 1.0, 0.1), period=0.02, room=120)
    fake_nvml.set(node(sampled={POWER: pulse}))
    async with running(ctx, options(interval=0.3, slow=30, statistics_window=WINDOW)):
        await until(lambda: len(rounds(ctx)) >= 8)
    assert len(rounds(ctx)) >= 8
    for samples in rounds(ctx):
        found = values(samples, GPU[0])
        assert (found["power_min_watts"], found["power_max_watts"]) == (100, 300)
        # The window contains one pulse or two.
        assert found["power_mean_watts"] == pytest.approx(118, abs=20)
        (maximum,) = readings(samples, "power_max_watts")
        assert maximum.window_start is not None
        assert 1.2 <= maximum.window_start.seconds_until(maximum.at) <= 1.4, (
            "the window has whole intervals"
        )


@pytest.mark.slow
async def test_a_ring_that_is_shorter_than_the_interval_is_read_between_rounds(
    fake_nvml: FakeNvml,
) -> None:
    ctx = context("power_max_watts")
    pulse = Sampled(100_000, pulse=(300_000, 1.2, 0.06), period=0.02, room=20)
    fake_nvml.set(node(sampled={POWER: pulse}))
    async with running(ctx, options(interval=1.2, slow=30, statistics_window=WINDOW)):
        await until(lambda: len(rounds(ctx)) >= 2)
        fake_nvml.calls(reset=True)
        samples = await next_rounds(ctx, 1)
        calls = fake_nvml.calls()["nvmlDeviceGetSamples"]
    # The ring holds 0.38 s. It is read when 0.28 s of it are new, and not more often.
    assert 4 <= calls <= 6
    (maximum,) = readings(samples, "power_max_watts")
    assert maximum.value == 300
    assert maximum.window_start is not None
    assert maximum.window_start.seconds_until(maximum.at) >= 1.15
    assert [list(values(s, GPU[0])) for s in ctx.events if isinstance(s, SamplesTaken)] == [
        ["gpu_up", "power_max_watts"] for _ in rounds(ctx)
    ], "readings are reported with rounds only"


@pytest.mark.slow
async def test_only_rings_of_the_plan_are_read_and_once_per_round(fake_nvml: FakeNvml) -> None:
    ctx = context("gpu_utilization_max_percent", "gpu_utilization_min_percent")
    fake_nvml.set(h100s(2))
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.calls(reset=True)
        before = len(rounds(ctx))
        await next_rounds(ctx, 4)
        calls = fake_nvml.calls()["nvmlDeviceGetSamples"]
    assert abs(calls - 2 * (len(rounds(ctx)) - before)) <= 2


async def test_no_ring_is_read_without_statistics_in_the_plan(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx):
        await next_rounds(ctx, 3)
    assert "nvmlDeviceGetSamples" not in fake_nvml.calls()


@pytest.mark.slow
async def test_rings_that_stay_empty_are_not_read_in_each_round(fake_nvml: FakeNvml) -> None:
    ctx = context("sm_clock_max_mhz", "power_max_watts")
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.calls(reset=True)
        before = len(rounds(ctx))
        samples = await next_rounds(ctx, 5)
        calls = fake_nvml.calls()["nvmlDeviceGetSamples"]
    assert set(values(samples, GPU[0])) == {"gpu_up", "power_max_watts"}
    assert calls <= len(rounds(ctx)) - before + 1
    assert errors(ctx) == {}


@pytest.mark.parametrize("code", [3, 4, 6, 999])
async def test_a_failing_ring_does_not_affect_other_readings(
    fake_nvml: FakeNvml, code: int
) -> None:
    ctx = context("power_max_watts", "power_watts")
    fake_nvml.set(h100s(2).with_gpu(0, errors={"nvmlDeviceGetSamples": code}))
    async with running(ctx):
        samples = await next_rounds(ctx)
    assert set(values(samples, GPU[0])) == {"gpu_up", "power_watts"}
    assert set(values(samples, GPU[1])) == {"gpu_up", "power_watts", "power_max_watts"}
    assert ups(samples) == dict.fromkeys(GPU[:2], 1)
    assert bool(errors(ctx)) == (code == 999)


async def test_mig_instances_have_no_statistics_and_their_gpu_has_power(
    fake_nvml: FakeNvml,
) -> None:
    ctx = context()
    fake_nvml.set(node(mig=slices(0, "3g.40gb")))
    async with running(ctx):
        samples = await next_rounds(ctx)
    assert {(r.device, r.field) for r in samples.readings} == {
        (GPU[0], "gpu_up"),
        *((GPU[0], f"power_{which}_watts") for which in ("min", "mean", "max")),
    }
    assert errors(ctx) == {}


@pytest.mark.parametrize(
    ("ring", "counted"),
    [
        (Sampled(101), True),
        (Sampled(-1, type="int"), True),
        (Sampled(float("nan"), type="double"), True),
        (Sampled(ALL_ONES_32), False),
    ],
)
async def test_an_impossible_value_is_dropped_and_counted(
    fake_nvml: FakeNvml, ring: Sampled, counted: bool
) -> None:
    ctx = context("gpu_utilization_max_percent", "power_max_watts")
    fake_nvml.set(node(sampled={1: ring}))
    async with running(ctx):
        samples = await next_rounds(ctx)
    assert set(values(samples, GPU[0])) == {"gpu_up", "power_max_watts"}
    assert ((GPU[0], "out_of_range") in errors(ctx)) == counted


@pytest.mark.parametrize("kind", ["double", "uint", "ulong", "ull", "sll", "int", "ushort"])
async def test_each_type_of_value_is_read(fake_nvml: FakeNvml, kind: FieldType) -> None:
    ctx = context("gpu_utilization_max_percent")
    fake_nvml.set(node(sampled={1: Sampled(55, type=kind)}))
    async with running(ctx):
        samples = await next_rounds(ctx)
    assert values(samples, GPU[0]) == {"gpu_up": 1, "gpu_utilization_max_percent": 55}


@pytest.mark.slow
async def test_statistics_of_a_lost_gpu_restart(fake_nvml: FakeNvml) -> None:
    ctx = context("power_max_watts")
    hot = h100s(2, sampled={POWER: Sampled(500_000, period=0.02, room=20)})
    cold = h100s(2, sampled={POWER: Sampled(100_000, period=0.02, room=20)})
    fake_nvml.set(hot)
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.set(hot.with_gpu(0, lost=True))
        samples = await next_rounds(ctx)
        assert set(values(samples, GPU[0])) == {"gpu_up"}
        fake_nvml.set(cold)
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 1)
        assert values(await next_rounds(ctx), GPU[0])["power_max_watts"] == 100
        assert values(rounds(ctx)[-1], GPU[1])["power_max_watts"] == 500, (
            "the other GPU was never lost"
        )


@pytest.mark.slow
async def test_a_hang_between_rounds_affects_only_that_gpu(
    fake_nvml: FakeNvml, no_thread_left: None
) -> None:
    ctx = context("power_max_watts")
    ring = {POWER: Sampled(100_000, period=0.02, room=20)}
    fake_nvml.set(h100s(2, sampled=ring))
    async with running(ctx, options(interval=1.0, slow=30, deadline=0.2)):
        await until(lambda: rounds(ctx))
        hanging = h100s(2, sampled=ring).with_gpu(0, block={"nvmlDeviceGetSamples": 60.0})
        fake_nvml.set(hanging)
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 0)
        assert ups(rounds(ctx)[-1])[GPU[1]] == 1
        assert set(values(rounds(ctx)[-1], GPU[1])) == {"gpu_up", "power_max_watts"}


@pytest.mark.parametrize(
    ("interval", "window", "whole"),
    [(5, 15, 15), (4, 15, 16), (30, 15, 30), (0.1, 1, 1.0), (7, 15, 21)],
)
def test_the_window_is_rounded_up_to_whole_intervals(
    interval: float, window: float, whole: float
) -> None:
    configured = Options(
        interval=Duration(interval), slow_interval=Duration(60), statistics_window=Duration(window)
    )
    assert ReadingRequest.of(FieldPlan(), configured, ClockEvents(0), {}).window_ns == whole * NS


class Clock:
    """podgpu's clock, which the test moves. The clock of the driver runs on its own."""

    def __init__(self) -> None:
        self.moved_ns = 0

    def __call__(self) -> Instant:
        return Instant(time.monotonic_ns() + self.moved_ns, time.time_ns() + self.moved_ns)


def opened(fake: FakeNvml, gpu: Gpu, window_ns: int = 60 * NS) -> tuple[Ring, Clock]:
    fake.set(Scenario(gpus=[gpu]))
    nvml, clock = Library(), Clock()
    nvml.open()
    _, handle = nvml.handle_at(0)
    fields = frozenset({"power_min_watts", "power_max_watts"})
    wanted = ReadingRequest(fields, fast_valid_ns=1, window_ns=window_ns)
    (ring,) = rings(ReadTarget(nvml, handle, GPU[0], wanted, clock))
    return ring, clock


def read(ring: Ring) -> tuple[int, dict[str, float]]:
    gpu_readings = GpuReadings(GPU[0], Instant(0, 0))
    code = ring.read(gpu_readings, gpu_readings.at)
    return code, {reading.field: reading.value for reading in gpu_readings}


def test_samples_are_read_after_the_clock_was_set_back(fake_nvml: FakeNvml) -> None:
    ring = Sampled(100_000, period=0.02, room=20)
    hot = replace(ring, value=300_000)
    reader, _ = opened(fake_nvml, h100(sampled={POWER: ring}))
    assert read(reader) == (0, {"power_min_watts": 100, "power_max_watts": 100})
    shifted = {"sampling_shift": -3_600_000_000}
    fake_nvml.set(Scenario(gpus=[h100(sampled={POWER: hot}, values=shifted)]))
    assert read(reader) == (0, {"power_min_watts": 300, "power_max_watts": 300})


def test_without_new_samples_readings_end_after_the_window(fake_nvml: FakeNvml) -> None:
    reader, clock = opened(fake_nvml, h100(sampled={POWER: Sampled(1000, period=0.02, room=20)}))
    assert read(reader)[1]
    fake_nvml.set(Scenario(gpus=[h100(values={"sampling_shift": -1}, sampled={POWER: None})]))
    assert read(reader) == (3, {})
    # The samples are an hour apart, so no new one arrives.
    slow = h100(sampled={POWER: Sampled(1000, period=3600, room=20)})
    reader, clock = opened(fake_nvml, slow)
    assert read(reader)[1]
    clock.moved_ns += 59 * NS
    assert read(reader)[1]
    clock.moved_ns += 2 * NS
    assert read(reader) == (0, {})


def test_a_ring_is_due_before_it_wraps(fake_nvml: FakeNvml) -> None:
    reader, clock = opened(fake_nvml, h100(sampled={POWER: Sampled(1000, period=0.02, room=120)}))
    time.sleep(0.05)
    before = clock().mono_ns
    read(reader)
    assert reader.due_ns - before == pytest.approx(0.7 * 2.4 * NS, rel=0.1)


def test_a_ring_that_is_longer_than_reported_is_read_completely(fake_nvml: FakeNvml) -> None:
    reader, _ = opened(fake_nvml, h100(sampled={POWER: Sampled(1000, period=0.001, room=20)}))
    time.sleep(0.1)
    assert read(reader)[1]
    fake_nvml.set(Scenario(gpus=[h100(sampled={POWER: Sampled(1000, period=0.001, room=5000)})]))
    assert read(reader) == (0, {"power_min_watts": 1, "power_max_watts": 1})
