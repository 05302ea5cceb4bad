"""Temperature limits, fan speed and vGPU licence status."""

from typing import Any

import pytest

from pipeline.fields import FieldPlan
from pipeline.model import NS, SamplesTaken
from tests.fakes.nvml import ALL_ONES_32, FakeNvml, Scenario, h100
from tests.sources.nvml.harness import (
    GPU,
    errors,
    good_for,
    next_rounds,
    options,
    running,
    values,
)
from tests.support.contexts import FakeSourceContext

THRESHOLDS = {"temperature_slowdown_celsius": 89, "temperature_shutdown_celsius": 95}


async def read(
    fake: FakeNvml, ctx: FakeSourceContext, *names: str, count: int = 3, **changes: Any
) -> SamplesTaken:
    """Return round number `count` of one H100 with these fields."""
    ctx.plan = FieldPlan([*names, "gpu_up"])
    fake.set(Scenario(gpus=[h100(**changes)]))
    fake.calls(reset=True)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        return await next_rounds(ctx, count)


@pytest.mark.slow
async def test_temperature_limits_are_read_once_and_reported_in_each_slow_round(
    fake_nvml: FakeNvml,
) -> None:
    samples = await read(fake_nvml, FakeSourceContext(), *THRESHOLDS, count=5)
    assert {name: values(samples, GPU[0])[name] for name in THRESHOLDS} == THRESHOLDS
    assert good_for(samples, THRESHOLDS) == {3 * NS // 10}
    assert fake_nvml.calls()["nvmlDeviceGetTemperatureThreshold"] == 2


@pytest.mark.slow
async def test_a_cached_temperature_limit_does_not_keep_gpu_up_at_1(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([*THRESHOLDS, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100()]))
    async with running(ctx, options(interval=0.1, slow=0.1, processes=False)):
        await next_rounds(ctx)
        fake_nvml.set(Scenario(gpus=[h100(errors={"*": 999})]))
        samples = await next_rounds(ctx)
    assert values(samples, GPU[0]) == {"gpu_up": 0}


@pytest.mark.slow
async def test_a_temperature_limit_that_failed_is_read_again(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    name = "temperature_slowdown_celsius"
    ctx.plan = FieldPlan([name, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100(errors={"nvmlDeviceGetTemperatureThreshold": 999})]))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        assert name not in values(await next_rounds(ctx), GPU[0])
        fake_nvml.set(Scenario(gpus=[h100()]))
        assert values(await next_rounds(ctx), GPU[0])[name] == 89
    assert errors(ctx)[GPU[0], "unknown"] >= 1


@pytest.mark.parametrize(
    ("value", "counted"), [(5000, {"out_of_range"}), (ALL_ONES_32, set())], ids=str
)
async def test_an_impossible_temperature_limit_is_dropped(
    fake_nvml: FakeNvml, value: int, counted: set[str]
) -> None:
    ctx = FakeSourceContext()
    samples = await read(fake_nvml, ctx, *THRESHOLDS, values={"temp_threshold_1": value})
    assert set(values(samples, GPU[0])) == {"gpu_up", "temperature_shutdown_celsius"}
    assert {error for _, error in errors(ctx)} == counted


FANS = [
    ("no fan", {"fans": 0}, None, set()),
    ("one fan", {"fans": 1, "fan_speed_0": 33}, 33, set()),
    (
        "the fastest of three",
        {"fans": 3, "fan_speed_0": 33, "fan_speed_1": 71, "fan_speed_2": 0},
        71,
        set(),
    ),
    ("above 100 %", {"fans": 1, "fan_speed_0": 120}, 120, set()),
    ("unknown speed", {"fans": 1, "fan_speed_0": ALL_ONES_32}, None, set()),
    ("one of two fails", {"fans": 2, "fan_speed_1": 40}, 40, set()),
    (
        "impossible speed",
        {"fans": 2, "fan_speed_0": 9, "fan_speed_1": 4000},
        9,
        {"out_of_range"},
    ),
]


@pytest.mark.parametrize(
    ("fans", "speed", "counted"), [c[1:] for c in FANS], ids=[c[0] for c in FANS]
)
async def test_the_fan_speed_is_that_of_the_fastest_fan(
    fake_nvml: FakeNvml, fans: dict[str, int], speed: int | None, counted: set[str]
) -> None:
    ctx = FakeSourceContext()
    samples = await read(fake_nvml, ctx, "fan_speed_percent", values=fans)
    assert values(samples, GPU[0]).get("fan_speed_percent") == speed
    assert {error for _, error in errors(ctx)} == counted


LICENCES = [
    ("card without licensing", {"licence_supported": 0}, 0),
    ("not licensed", {"licence_supported": 1, "licence_state": 0}, 0),
    ("licensed", {"licence_supported": 1, "licence_state": 1}, 1),
    ("call not supported", {"licence_supported": None}, None),
]


@pytest.mark.parametrize(
    ("card", "status"), [c[1:] for c in LICENCES], ids=[c[0] for c in LICENCES]
)
async def test_the_licence_status_is_1_for_a_licensed_card(
    fake_nvml: FakeNvml, card: dict[str, int], status: int | None
) -> None:
    ctx = FakeSourceContext()
    samples = await read(fake_nvml, ctx, "vgpu_license_status", values=card)
    assert values(samples, GPU[0]).get("vgpu_license_status") == status
    assert errors(ctx) == {}
