"""A DCGM name in a base unit has the field's value in that unit; the others keep theirs."""

import pytest

from config.schema import Counters
from pipeline.counters.plan_builder import planned
from pipeline.exposition.text_format import Format
from pipeline.fields import CATALOGUE, by_name
from pipeline.model import Value
from tests.pipeline.exposition.pages import context, families, of, parsed, rendered
from tests.support.nodes import Node, gpu, reading

BASED = [field for field in CATALOGUE if field.dcgm_base]


def page(text: str, name: str, value: Value) -> bytes:
    """Return the page of a counters list, with a reading of one field."""
    plan = planned(text, Counters(own=False)).plan
    assert plan is not None
    ctx = context()
    ctx.plan = plan
    node = Node()
    node.has(gpu(0))
    node.reads(reading(gpu(0), name, value))
    return rendered(node.snapshot(), ctx=ctx)


@pytest.mark.parametrize(
    ("name", "value", "other", "base", "expected"),
    [
        ("sm_clock_mhz", 1755, "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1_755_000_000),
        (
            "energy_millijoules",
            1_500,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
            1.5,
        ),
        ("gpu_utilization_percent", 97, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.97),
        ("fan_speed_percent", 104, "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_FAN_SPEED_RATIO", 1.04),
        (
            "violation_board_limit_nanoseconds",
            2_500_000_000,
            "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
            "DCGM_FI_DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL",
            2.5,
        ),
    ],
)
def test_the_value_is_in_the_unit_of_the_name(
    name: str, value: Value, other: str, base: str, expected: float
) -> None:
    assert of(parsed(page(f"{other}, gauge", name, value)), other)[0][1] == value
    assert of(parsed(page(f"{base}, gauge", name, value)), base)[0][1] == expected


def test_bytes_have_no_other_unit_than_bytes() -> None:
    for name, expected in (
        ("DCGM_FI_DEV_FB_USED", 3),
        ("DCGM_FI_DEV_FB_USED_BYTES", 3 << 20),
        ("podgpu_memory_used_bytes", 3 << 20),
    ):
        shown = page(f"{name}, gauge", "memory_used_bytes", 3 << 20)
        assert of(parsed(shown), name)[0][1] == expected


def test_a_list_with_several_names_of_a_field_has_each_in_its_own_unit() -> None:
    text = """
DCGM_FI_DEV_FB_USED_BYTES, gauge, New.
DCGM_FI_DEV_GPU_TEMP, gauge
DCGM_FI_DEV_FB_USED, gauge, Old.
podgpu_memory_used_bytes, gauge
"""
    shown = page(text, "memory_used_bytes", 3 << 20)
    assert [
        (family.name, family.documentation, [sample.value for sample in family.samples])
        for family in families(shown, Format.TEXT)[:3]
    ] == [
        ("DCGM_FI_DEV_FB_USED_BYTES", "New.", [3 << 20]),
        ("DCGM_FI_DEV_FB_USED", "Old.", [3]),
        (
            "podgpu_memory_used_bytes",
            "Device memory that is allocated, without what the driver reserves.",
            [3 << 20],
        ),
    ]


def test_a_rate_in_bytes_is_not_in_dcgm_s_unit() -> None:
    name = "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND"
    shown = page(f"{name}, gauge", "nvlink_bandwidth_bytes_per_second", 5_000_000)
    assert of(parsed(shown), name)[0][1] == 5_000_000


@pytest.mark.parametrize("field", BASED, ids=lambda field: field.dcgm_base)
def test_both_names_of_a_field_mean_the_same_value(field: object) -> None:
    """The name says the unit, and the two values differ by the factor between the units."""
    found = by_name(getattr(field, "name", ""))
    assert found is not None
    base = found.unit_in(found.dcgm_base)
    words = {
        "hertz": "HERTZ",
        "joules": "JOULES_TOTAL",
        "seconds": "SECONDS_TOTAL",
        "ratio": "RATIO",
        "bytes": "BYTES",
        "bytes/s": "BYTES_PER_SECOND",
    }
    assert found.dcgm_base.endswith(f"_{words[base.unit]}")
    value = 3 << 30
    shown = page(f"{found.dcgm_base}, gauge", found.name, value)
    assert of(parsed(shown), found.dcgm_base)[0][1] == pytest.approx(float(value / base.divisor))


@pytest.mark.parametrize(
    ("base", "name", "about"),
    [
        (
            "DCGM_FI_DEV_SM_CLOCK_HERTZ",
            "sm_clock_mhz",
            "Clock of the streaming multiprocessors. In hertz.",
        ),
        (
            "DCGM_FI_DEV_DEC_UTIL_RATIO",
            "decoder_utilization_percent",
            "Utilisation of the video decoders. As a ratio.",
        ),
        (
            "DCGM_FI_DEV_FB_FREE_BYTES",
            "memory_free_bytes",
            "Device memory that can still be allocated.",
        ),
        (
            "DCGM_FI_DEV_FB_FREE",
            "memory_free_bytes",
            "Device memory that can still be allocated. In MiB.",
        ),
    ],
)
def test_the_help_text_names_the_unit(base: str, name: str, about: str) -> None:
    [family] = families(page(f"{base}, gauge", name, 0), Format.TEXT)[:1]
    assert (family.name, family.documentation) == (base, about)
