"""Field values: one call returns many readings, and each can fail without the others."""

import pytest

from pipeline.fields import FieldPlan, Tier, by_name, in_group
from pipeline.model import SamplesTaken
from sources.nvml import composite_readers
from tests.fakes.nvml import ALL_ONES_32, ALL_ONES_64, FakeNvml, Field, Gpu, Scenario, h100, t4
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

KNOWN = {**composite_readers.FAST, **composite_readers.SLOW}
PLAN = FieldPlan(KNOWN)


async def read(
    fake: FakeNvml, gpu: Gpu, plan: FieldPlan = PLAN, ctx: FakeSourceContext | None = None
) -> SamplesTaken:
    """Return the first round of a node with one GPU."""
    ctx = ctx or FakeSourceContext()
    ctx.plan = plan
    fake.set(Scenario(gpus=[gpu]))
    fake.calls(reset=True)
    async with running(ctx, options(interval=30, slow=60, processes=False)):
        await until(lambda: [e for e in ctx.events if isinstance(e, SamplesTaken)])
    return next(e for e in ctx.events if isinstance(e, SamplesTaken))


@pytest.mark.parametrize("name", KNOWN)
async def test_each_field_is_converted_to_its_unit(fake_nvml: FakeNvml, name: str) -> None:
    known = KNOWN[name]
    gpu = h100(fields={known.number: Field(1, "ull")})
    assert values(await read(fake_nvml, gpu), GPU[0])[name] == 1 / known.divisor


@pytest.mark.parametrize(
    ("name", "code"),
    # The code is handled before the name: all names with one code, and all codes with one name.
    [*((name, 3) for name in KNOWN), *((next(iter(KNOWN)), code) for code in (2, 4, 6, 13))],
)
async def test_an_unsupported_field_has_no_series_and_affects_no_other(
    fake_nvml: FakeNvml, name: str, code: int
) -> None:
    ctx = FakeSourceContext()
    fields = {item.number: Field(1, "ull") for item in KNOWN.values()}
    lacking = h100(
        fields={**fields, KNOWN[name].number: Field(error=code)},
        errors={"nvmlDeviceGetPowerManagementLimit": 3},
    )
    found = values(await read(fake_nvml, lacking, ctx=ctx), GPU[0])
    assert set(found) == set(KNOWN) - {name}
    assert errors(ctx) == {}


@pytest.mark.parametrize("name", KNOWN)
async def test_a_failed_field_is_counted_and_affects_no_other(
    fake_nvml: FakeNvml, name: str
) -> None:
    ctx = FakeSourceContext()
    fields = {item.number: Field(1, "ull") for item in KNOWN.values()}
    gpu = h100(fields={**fields, KNOWN[name].number: Field(error=999)})
    found = values(await read(fake_nvml, gpu, ctx=ctx), GPU[0])
    assert set(found) == set(KNOWN) - {name}
    assert errors(ctx) == {(GPU[0], "unknown"): 1}


@pytest.mark.parametrize("name", [name for name in KNOWN if KNOWN[name].max_value < 1 << 40])
async def test_an_impossible_value_is_dropped_and_counted(fake_nvml: FakeNvml, name: str) -> None:
    ctx = FakeSourceContext()
    gpu = h100(fields={KNOWN[name].number: Field(KNOWN[name].max_value + 1, "ull")})
    assert name not in values(await read(fake_nvml, gpu, ctx=ctx), GPU[0])
    assert errors(ctx) == {(GPU[0], "out_of_range"): 1}


@pytest.mark.parametrize("name", KNOWN)
async def test_all_ones_mean_unknown(fake_nvml: FakeNvml, name: str) -> None:
    ones = [Field(ALL_ONES_64, "ull")]
    if KNOWN[name].max_value < ALL_ONES_32:  # a 64-bit counter can have that value
        ones.append(Field(ALL_ONES_32))
    for value in ones:
        ctx = FakeSourceContext()
        gpu = h100(fields={KNOWN[name].number: value})
        assert name not in values(await read(fake_nvml, gpu, ctx=ctx), GPU[0])
        assert errors(ctx) == {}


@pytest.mark.parametrize("code", [15, 16])
async def test_a_field_that_reports_a_lost_gpu_sets_gpu_up_to_0(
    fake_nvml: FakeNvml, code: int
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([*KNOWN, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100(0, fields={230: Field(error=code)}), h100(1)]))
    async with running(ctx, options(interval=30, slow=60)):
        await until(lambda: rounds(ctx))
    assert ups(rounds(ctx)[0]) == {GPU[0]: 0, GPU[1]: 1}


async def test_the_fields_of_a_tier_are_read_by_one_call(fake_nvml: FakeNvml) -> None:
    await read(fake_nvml, h100())
    assert fake_nvml.calls()["nvmlDeviceGetFieldValues"] == 2
    await read(fake_nvml, h100(), FieldPlan(["power_watts"]))
    assert "nvmlDeviceGetFieldValues" not in fake_nvml.calls()


def test_numbers_and_tiers_match_the_catalogue() -> None:
    for names, tier in ((composite_readers.FAST, Tier.FAST), (composite_readers.SLOW, Tier.SLOW)):
        for name, known in names.items():
            field = by_name(name)
            assert field is not None
            assert (field.call, field.tier) == (f"nvmlDeviceGetFieldValues({known.number})", tier)


async def test_retired_pages_are_read_from_cards_before_ampere(fake_nvml: FakeNvml) -> None:
    pages = {name for name in in_group("health") if name.startswith("retired_")}
    assert pages <= set(values(await read(fake_nvml, t4()), GPU[0]))
    assert pages.isdisjoint(values(await read(fake_nvml, h100()), GPU[0]))


async def test_the_power_limit_is_read_by_a_function_from_an_old_driver(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["power_limit_watts", "gpu_up"])
    gpu = h100(fields={192: Field(error=3)}, values={"power_limit": 350_000})
    fake_nvml.set(Scenario(gpus=[gpu]))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        samples = await next_rounds(ctx, 3)
    assert values(samples, GPU[0])["power_limit_watts"] == 350
