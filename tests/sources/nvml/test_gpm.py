"""GPU performance monitoring (GPM): averages over the time between two samples of one device."""

import itertools
import time
from collections.abc import Iterable
from dataclasses import replace

import pynvml
import pytest

from pipeline.fields import FieldPlan, in_group
from pipeline.model import NS, Instant, Reading, SamplesTaken
from sources.nvml import codes
from sources.nvml.gpm import METRICS, Profiler, Profiling
from sources.nvml.library import Library
from sources.nvml.reader_parts import GpuReadings, ReadingRequest, ReadTarget
from tests.fakes.nvml import FakeNvml, Gpm, Scenario, h100, h100s, slices
from tests.sources.nvml.harness import (
    GPU,
    errors,
    mig,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext

ACTIVE = "sm_active_ratio"  # metric 2, of GPUs and instances
SENT = "pcie_transmit_bytes_per_second"  # metric 20, of GPUs only
MIB = 1 << 20

# Rounds that are far enough apart for GPM even on a busy machine.
SPACED = {"interval": 0.2, "slow": 0.2}


def context(*names: str) -> FakeSourceContext:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up", *(names or METRICS)])
    return ctx


def of(events: Iterable[SamplesTaken], uuid: str, field: str = ACTIVE) -> list[Reading]:
    return [r for e in events for r in e.readings if r.device == uuid and r.field == field]


NAMES = {
    "graphics_engine_active_ratio": "GRAPHICS_UTIL",
    "sm_active_ratio": "SM_UTIL",
    "sm_occupancy_ratio": "SM_OCCUPANCY",
    "integer_active_ratio": "INTEGER_UTIL",
    "tensor_active_ratio": "ANY_TENSOR_UTIL",
    "tensor_dfma_active_ratio": "DFMA_TENSOR_UTIL",
    "tensor_hmma_active_ratio": "HMMA_TENSOR_UTIL",
    "tensor_imma_active_ratio": "IMMA_TENSOR_UTIL",
    "dram_active_ratio": "DRAM_BW_UTIL",
    "fp64_active_ratio": "FP64_UTIL",
    "fp32_active_ratio": "FP32_UTIL",
    "fp16_active_ratio": "FP16_UTIL",
    "pcie_transmit_bytes_per_second": "PCIE_TX_PER_SEC",
    "pcie_receive_bytes_per_second": "PCIE_RX_PER_SEC",
    "nvlink_transmit_bytes_per_second": "NVLINK_TOTAL_TX_PER_SEC",
    "nvlink_receive_bytes_per_second": "NVLINK_TOTAL_RX_PER_SEC",
    **{f"nvdec{n}_active_ratio": f"NVDEC_{n}_UTIL" for n in range(8)},
    **{f"nvjpg{n}_active_ratio": f"NVJPG_{n}_UTIL" for n in range(8)},
    **{f"nvofa{n}_active_ratio": f"NVOFA_{n}_UTIL" for n in range(2)},
    **{
        f"nvlink_{n}_{way}_bytes_per_second": f"NVLINK_L{n}_{short}_PER_SEC"
        for n in range(18)
        for way, short in (("transmit", "TX"), ("receive", "RX"))
    },
    "c2c_transmit_all_bytes_per_second": "C2C_TOTAL_TX_PER_SEC",
    "c2c_receive_all_bytes_per_second": "C2C_TOTAL_RX_PER_SEC",
    "c2c_transmit_data_bytes_per_second": "C2C_DATA_TX_PER_SEC",
    "c2c_receive_data_bytes_per_second": "C2C_DATA_RX_PER_SEC",
    **{
        f"{memory}_cache_{outcome}_ratio": f"{memory.upper()}_CACHE_{outcome.upper()}"
        for memory in ("hostmem", "peermem")
        for outcome in ("hit", "miss")
    },
}


def test_each_field_has_the_number_of_its_nvml_metric() -> None:
    numbers = {name: known.number for name, known in METRICS.items()}
    assert numbers == {
        name: getattr(pynvml, f"NVML_GPM_METRIC_{named}") for name, named in NAMES.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("interval", "validity"), [(0.1, 0.6), (0.2, 0.6), (0.3, 0.9)])
async def test_readings_stay_valid_if_rounds_are_slightly_too_close(
    fake_nvml: FakeNvml, interval: float, validity: float
) -> None:
    ctx = context(ACTIVE)
    async with running(ctx, options(interval=interval, slow=1)):
        await until(lambda: len(of(rounds(ctx), GPU[0])) >= 3)
    assert {r.good_for_ns for r in of(rounds(ctx), GPU[0])} == {round(validity * NS)}


# An H100 has 7 NVDEC, 7 NVJPG and one OFA.
NO_ENGINES = {"nvdec7_active_ratio", "nvjpg7_active_ratio", "nvofa1_active_ratio"}
NO_PROFILES = {"nvmlDeviceGetGpuInstanceProfileInfo": codes.NOT_SUPPORTED}


async def test_engines_that_the_card_lacks_have_no_reading(fake_nvml: FakeNvml) -> None:
    ctx = context()
    fake_nvml.set(h100s(1, mig=slices(0, "3g.40gb")))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    assert set(values(samples, GPU[0])) == {"gpu_up", *METRICS} - NO_ENGINES
    instance_fields = {name for name, known in METRICS.items() if known.mig} - NO_ENGINES
    assert set(values(samples, mig(0, 7))) == instance_fields
    assert errors(ctx) == {}


async def test_a_plan_without_engines_reads_no_profiles(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE, SENT)
    async with running(ctx, options(**SPACED)):
        await next_rounds(ctx)
    assert "nvmlDeviceGetGpuInstanceProfileInfo" not in fake_nvml.calls()


@pytest.mark.parametrize("code", [3, 4, 13, 999])
async def test_each_metric_is_converted_to_the_unit_of_its_field(
    fake_nvml: FakeNvml, code: int
) -> None:
    """If the driver does not report which engines exist, all have readings."""
    ctx = context()
    reported = {name: known.number % 100 + 0.5 for name, known in METRICS.items()}
    gpm = {METRICS[name].number: Gpm(number) for name, number in reported.items()}
    fake_nvml.set(h100s(1, gpm=gpm, errors=dict.fromkeys(NO_PROFILES, code)))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    found = values(samples, GPU[0])
    del found["gpu_up"]
    assert found == {
        name: pytest.approx(number * (0.01 if name.endswith("ratio") else MIB))
        for name, number in reported.items()
    }
    assert set(in_group("profiling")) <= set(METRICS)
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_a_reading_is_the_mean_over_exactly_its_window(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    start, rate = 10.0, 2.0  # percent, and percent per second
    origin = time.monotonic()
    ramp = h100s(1, gpm={2: Gpm(start, rate)})
    fake_nvml.set(replace(ramp, t0=origin))
    async with running(ctx, options(interval=0.3, slow=30)):
        await until(lambda: len(of(rounds(ctx), GPU[0])) >= 4)
    found = of(rounds(ctx), GPU[0])
    for reading in found:
        assert reading.window_start is not None
        middle = (reading.window_start.mono_ns + reading.at.mono_ns) / 2e9 - origin
        # A sample that is 0.1 s off would change the value by 0.001.
        assert reading.value == pytest.approx((start + rate * middle) / 100, abs=0.0005)
    for before, after in itertools.pairwise(found):
        assert after.window_start == before.at, "the windows have no gap between them"
    assert len(of(rounds(ctx)[:1], GPU[0])) == 0, "one sample is not enough for a value"


async def test_a_failed_metric_does_not_affect_the_others(fake_nvml: FakeNvml) -> None:
    ctx = context()
    lacking = dict.fromkeys((4, 6, 7, 9))
    failing = {3: Gpm(error=3), 5: Gpm(error=999), 10: Gpm(error=4), 20: Gpm(error=6)}
    fake_nvml.set(h100s(1, gpm={2: Gpm(50), **lacking, **failing}, errors=NO_PROFILES))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    missing = {name for name, known in METRICS.items() if known.number in {**lacking, **failing}}
    assert set(values(samples, GPU[0])) == {"gpu_up", *METRICS} - missing
    assert values(samples, GPU[0])[ACTIVE] == 0.5
    assert set(errors(ctx)) == {(GPU[0], "unknown")}


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        (2, 100.0, 1.0),
        (2, 100.05, 1.0),
        (2, 100.2, None),
        (2, -0.05, 0.0),
        (2, -0.2, None),
        (2, float("nan"), None),
        (2, float("inf"), None),
        (2, float("-inf"), None),
        (20, 0.0, 0.0),
        (20, -0.05, None),
        (20, 1e9, None),
        (20, float("nan"), None),
    ],
)
async def test_an_impossible_value_is_dropped_and_counted(
    fake_nvml: FakeNvml, metric: int, value: float, expected: float | None
) -> None:
    field = ACTIVE if metric == 2 else SENT
    ctx = context(ACTIVE, SENT)
    fake_nvml.set(h100s(1, gpm={metric: Gpm(value)}))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    found = values(samples, GPU[0])
    assert found.get(field) == expected
    assert ((GPU[0], "out_of_range") in errors(ctx)) == (expected is None)
    assert len(found) == (3 if expected is not None else 2), "the other metric is present"


@pytest.mark.slow
async def test_a_card_without_gpm_is_queried_once_when_it_is_opened(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, values={"gpm_supported": 0}))
    async with running(ctx):
        await next_rounds(ctx, 1)
        calls = {name for name in fake_nvml.calls(reset=True) if "Gpm" in name}
        assert calls == {"nvmlGpmQueryDeviceSupport"}
        samples = await next_rounds(ctx, 4)
    assert not METRICS.keys() & values(samples, GPU[0]).keys()
    assert not [name for name in fake_nvml.calls() if "Gpm" in name]
    assert errors(ctx) == {}


@pytest.mark.parametrize("code", [3, 13, 999])
async def test_gpm_is_tried_if_the_support_query_fails_with_unknown(
    fake_nvml: FakeNvml, code: int
) -> None:
    ctx = context(ACTIVE)
    fake_nvml.set(h100s(1, errors={"nvmlGpmQueryDeviceSupport": code}))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    assert (ACTIVE in values(samples, GPU[0])) == (code == 999)


async def test_a_plan_without_gpm_fields_makes_no_gpm_calls(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up", "power_watts"])
    async with running(ctx):
        await next_rounds(ctx)
    assert not [name for name in fake_nvml.calls() if "Gpm" in name]
    assert fake_nvml.gpm_samples() == (0, 0)


async def test_only_metrics_of_the_plan_are_requested(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    gpm = {known.number: Gpm(error=999) for name, known in METRICS.items() if name != ACTIVE}
    fake_nvml.set(h100s(1, gpm=gpm, mig=slices(0, "3g.40gb", gpm=gpm)))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    for uuid in (GPU[0], mig(0, 7)):
        assert values(samples, uuid)[ACTIVE] == 0
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_a_failed_sample_makes_the_next_window_longer(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    async with running(ctx, options(interval=0.15, slow=30)):
        await next_rounds(ctx)
        fake_nvml.set(h100s(1, errors={"nvmlGpmSampleGet": 999}))
        await next_rounds(ctx)
        last = of(rounds(ctx), GPU[0])[-1]
        fake_nvml.set(h100s(1))
        await next_rounds(ctx)
    following = next(r for r in of(rounds(ctx), GPU[0]) if r.at > last.at)
    assert following.window_start == last.at
    assert following.at.mono_ns - last.at.mono_ns > 250_000_000
    assert errors(ctx)[GPU[0], "unknown"] >= 1
    assert ups(rounds(ctx)[-1]) == {GPU[0]: 1}


async def test_each_gpu_instance_has_its_own_metrics(fake_nvml: FakeNvml) -> None:
    ctx = context()
    seven = [
        replace(one, gpm={2: Gpm(10.0 * at)}) for at, one in enumerate(slices(0, *["1g.10gb"] * 7))
    ]
    fake_nvml.set(Scenario(gpus=[h100(0, mig=seven, gpm={2: Gpm(30.0)}), h100(1)]))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    assert values(samples, GPU[0])[ACTIVE] == pytest.approx(0.3)
    for at in range(7):
        found = values(samples, mig(0, 7 + at))
        assert found[ACTIVE] == pytest.approx(0.1 * at)
        assert set(found) == {name for name, known in METRICS.items() if known.mig} - NO_ENGINES
    assert SENT in values(samples, GPU[0])
    assert errors(ctx) == {}


async def test_instances_are_read_if_their_gpu_does_not_support_samples(
    fake_nvml: FakeNvml,
) -> None:
    ctx = context(ACTIVE)
    fake_nvml.set(h100s(1, mig=slices(0, "3g.40gb"), errors={"nvmlGpmSampleGet": 3}))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    assert set(values(samples, GPU[0])) == {"gpu_up"}
    assert set(values(samples, mig(0, 7))) == {ACTIVE}
    assert errors(ctx) == {}


class Clock:
    """A clock that stands still, except that each call takes the next time in `coming`, in ms."""

    def __init__(self) -> None:
        self.ms = 0
        self.coming: list[int] = []

    def __call__(self) -> Instant:
        if self.coming:
            self.ms = self.coming.pop(0)
        return Instant(self.ms * 1_000_000, self.ms * 1_000_000)


def opened(fake: FakeNvml, scenario: Scenario) -> tuple[Profiler, Clock, Library]:
    fake.set(scenario)
    nvml, clock = Library(), Clock()
    nvml.open()
    _, handle = nvml.handle_at(0)
    target = ReadTarget(nvml, handle, GPU[0], ReadingRequest(frozenset({ACTIVE})), clock)
    profiler = Profiling(target).profiler(target.uuid)
    assert profiler is not None
    fake.calls(reset=True)
    return profiler, clock, nvml


def test_samples_that_are_too_close_are_not_taken(fake_nvml: FakeNvml) -> None:
    profiler, clock, _ = opened(fake_nvml, h100s(1))
    readings = GpuReadings(GPU[0], clock())
    calls_at = []
    for ms in (0, 50, 99, 100, 150, 199, 200, 1000):
        clock.ms = ms
        code = profiler.read(readings, clock())
        calls = fake_nvml.calls(reset=True)
        calls_at.append((ms, calls.get("nvmlGpmSampleGet", 0), calls.get("nvmlGpmMetricsGet", 0)))
        assert code == (codes.NOT_CALLED if not calls else codes.OK)
    assert [ms for ms, sampled, _ in calls_at if sampled] == [0, 100, 200, 1000]
    assert [ms for ms, _, computed in calls_at if computed] == [100, 200, 1000]


def test_the_time_of_a_sample_is_when_its_call_returned(fake_nvml: FakeNvml) -> None:
    profiler, clock, _ = opened(fake_nvml, h100s(1))
    readings = GpuReadings(GPU[0], clock())
    clock.coming = [0, 60, 110, 160, 170]
    assert profiler.read(readings, readings.at) == codes.OK, "the call takes from 0 to 60 ms"
    assert profiler.read(readings, readings.at) == codes.NOT_CALLED, "50 ms after the call returned"
    assert profiler.read(readings, readings.at) == codes.OK


def test_a_device_without_any_metric_of_the_plan_is_not_supported(fake_nvml: FakeNvml) -> None:
    profiler, clock, _ = opened(fake_nvml, h100s(1, gpm={2: None}))
    readings = GpuReadings(GPU[0], clock())
    assert profiler.read(readings, clock()) == codes.OK
    clock.ms = 100
    assert profiler.read(readings, clock()) == codes.NOT_SUPPORTED
    assert not readings
    assert not readings.errors


def test_unused_buffers_are_used_again_and_freed_at_the_shutdown(fake_nvml: FakeNvml) -> None:
    profiler, clock, nvml = opened(fake_nvml, h100s(1))
    readings = GpuReadings(GPU[0], clock())
    profiler.read(readings, clock())
    assert fake_nvml.gpm_samples() == (2, 0)
    profiler.reset()
    assert fake_nvml.gpm_samples() == (2, 0), "reset() may run on the event loop"
    profiler.read(readings, clock())
    assert fake_nvml.gpm_samples() == (2, 0)
    nvml.close()
    assert fake_nvml.gpm_samples() == (0, 0)
    nvml.open()
    profiler.reset()
    nvml.close()
    assert fake_nvml.gpm_samples() == (0, 0), "nothing is freed twice"


def test_a_failed_sample_allocation_is_an_error_of_the_reading(fake_nvml: FakeNvml) -> None:
    profiler, clock, _ = opened(fake_nvml, h100s(1, errors={}))
    fake_nvml.set(replace(h100s(1), errors={"nvmlGpmSampleAlloc": 20}))
    assert profiler.read(GpuReadings(GPU[0], clock()), clock()) == 20
    fake_nvml.set(h100s(1))
    assert profiler.read(GpuReadings(GPU[0], clock()), clock()) == 0
