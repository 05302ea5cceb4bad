"""A second round soon after the start, for fields that need two readings."""

import asyncio

import pytest

from pipeline.fields import FieldPlan
from pipeline.model import NS
from tests.fakes.nvml import FakeNvml, Gpm, Scenario, h100
from tests.fakes.nvml.cards import linked
from tests.sources.nvml.harness import GPU, options, rounds, running, until, values
from tests.support.contexts import FakeSourceContext

NEED_TWO_ROUNDS = ("sm_active_ratio", "nvlink_bandwidth_bytes_per_second")


@pytest.mark.slow
@pytest.mark.parametrize("field", NEED_TWO_ROUNDS)
async def test_a_second_round_follows_the_first_after_a_second(
    fake_nvml: FakeNvml, field: str
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up", field])
    fake_nvml.set(Scenario(gpus=[h100(gpm={2: Gpm(50)}, **linked())]))
    async with running(ctx, options(interval=60, slow=60)):
        await until(lambda: len(rounds(ctx)) >= 2)
    first, second = rounds(ctx)
    assert field not in values(first, GPU[0])
    (found,) = [reading for reading in second.readings if reading.field == field]
    assert found.window_start is not None
    assert 0.9 * NS < found.at.mono_ns - found.window_start.mono_ns < 5 * NS
    assert found.good_for_ns > 60 * NS, "valid until the next round"


@pytest.mark.slow
async def test_no_second_round_follows_if_one_reading_is_enough(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up", "power_watts"])
    fake_nvml.set(Scenario(gpus=[h100()]))
    async with running(ctx, options(interval=60, slow=60)):
        await until(lambda: rounds(ctx))
        await asyncio.sleep(1.5)
    assert len(rounds(ctx)) == 1
