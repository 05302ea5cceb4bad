"""The field p2p_status: whether GPUs reach each other over NVLink, as dcgm-exporter names it."""

import pytest

from pipeline.fields import FieldPlan
from tests.fakes.nvml import FakeNvml, h100s
from tests.sources.nvml.harness import (
    GPU,
    HANGS,
    errors,
    next_rounds,
    options,
    rounds,
    running,
    sampling_threads,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext

STATUS = [
    (0, "OK"),
    (1, "ChipsetNotSupported"),
    (2, "GPUNotSupported"),
    (3, "TopologyNotSupported"),
    (4, "DisabledByRegKey"),
    (5, "NotSupported"),
    (6, "Unknown"),
]
PLAN = FieldPlan(["p2p_status", "gpu_up"])


def without_gpu_up(found: dict[str, int | float]) -> dict[str, int | float]:
    return {name: value for name, value in found.items() if name != "gpu_up"}


@pytest.mark.parametrize(("status", "word"), STATUS)
async def test_each_gpu_reports_its_status_to_each_other_gpu(
    fake_nvml: FakeNvml, status: int, word: str
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = PLAN
    fake_nvml.set(h100s(3, values={"p2p_2": status}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        samples = await next_rounds(ctx)
    for index in range(3):
        assert without_gpu_up(values(samples, GPU[index])) == {
            f"p2p_status{{{word},{peer}}}": status for peer in range(3) if peer != index
        }


async def test_a_single_gpu_has_no_peers(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = PLAN
    async with running(ctx, options(interval=0.1, slow=0.1)):
        samples = await next_rounds(ctx)
    assert values(samples, GPU[0]) == {"gpu_up": 1}
    assert errors(ctx) == {}


async def test_an_unknown_status_is_dropped_and_counted(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = PLAN
    fake_nvml.set(h100s(2, values={"p2p_2": 7}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        samples = await next_rounds(ctx)
    assert values(samples, GPU[0]) == {"gpu_up": 1}
    assert {error for _, error in errors(ctx)} == {"out_of_range"}


@pytest.mark.slow
async def test_a_lost_peer_does_not_affect_the_other_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = PLAN
    node = h100s(3)
    fake_nvml.set(node)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await next_rounds(ctx)
        fake_nvml.set(node.with_gpu(1, lost=True))
        await next_rounds(ctx)
        samples = await next_rounds(ctx)
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert without_gpu_up(values(samples, GPU[0])) == {"p2p_status{OK,2}": 0}
        fake_nvml.set(node)
        await next_rounds(ctx, 3)
        back = await next_rounds(ctx)
    assert set(without_gpu_up(values(back, GPU[0]))) == {"p2p_status{OK,1}", "p2p_status{OK,2}"}


@pytest.mark.slow
async def test_no_status_is_read_to_a_hanging_peer(
    fake_nvml: FakeNvml, no_thread_left: None
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["p2p_status", "gpu_up", "power_watts"])
    fake_nvml.set(h100s(3))
    async with running(ctx, options(interval=0.1, slow=0.1, deadline=0.3)):
        await next_rounds(ctx)
        fake_nvml.set(h100s(3).with_gpu(1, block=HANGS))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        samples = await next_rounds(ctx, 3)
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        for place, peer in ((0, 2), (2, 0)):
            found = {name for name in values(samples, GPU[place]) if name.startswith("p2p")}
            assert found == {f"p2p_status{{OK,{peer}}}"}, (
                "a call about the hanging peer might hang too"
            )
        assert sampling_threads() == 2
        fake_nvml.set(h100s(3))
        await until(lambda: "p2p_status{OK,1}" in values(rounds(ctx)[-1], GPU[0]))
