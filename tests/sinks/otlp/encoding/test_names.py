"""Name, unit and type of the metric of every field."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.fields import CATALOGUE, Field, FieldPlan, Row, by_name
from sinks.otlp.encoding import metric_names
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.encoding.metric_names import UCUM, FieldMapping
from sinks.otlp.encoding.semconv import INSTRUMENTS
from sinks.otlp.encoding.series_layout import CONFLICTS, HOLDING, HOLDING_ON_PAGE
from sinks.otlp.options import Names
from tests.sinks.otlp.encoding.prometheus import name_of
from tests.sinks.otlp.encoding.support import points
from tests.support.nodes import Node, claim, every_field, gpu, mig, reading

PAGE = Path(__file__).parents[4] / "docs" / "otlp-names.md"
STYLE = PageNaming(PageOptions(hostname=False), FieldPlan.everything(), "node-1")


def mapping_of(name: str, *, instance: bool = False) -> FieldMapping | None:
    field = by_name(name)
    assert field is not None
    return metric_names.semconv_mapping(Row(field), instance=instance)


@pytest.mark.parametrize("names", ["semconv", "dcgm"])
def test_no_two_readings_of_a_device_are_the_same_series(names: Names) -> None:
    devices = [gpu(0), gpu(1), mig(gpu(1), 1)]
    node = Node()
    node.has(*devices)
    node.podlist(claim("train", devices[0].uuid), claim("serve", devices[2].uuid))
    # An instance can have every field too, if it comes from a scraped page.
    whole = every_field(devices[:2])
    node.reads(*whole, *(r._replace(device=devices[2].uuid) for r in whole[: len(CATALOGUE)]))
    encoder = Encoder("node-1", FieldPlan.everything(), names=names)
    found = points(encoder.encode(node.snapshot()))
    assert encoder.duplicates == 0
    times = Counter(point.identity for point in found)
    assert [identity for identity, count in times.items() if count > 1] == []
    # Names and attributes differ even without the resource: each reading is sent once.
    without_resource = Counter((point.name, point.attributes) for point in found)
    assert [series for series, count in without_resource.items() if count > 1] == []


@pytest.mark.parametrize("names", ["semconv", "dcgm"])
def test_a_metric_name_has_one_unit_and_one_type(names: Names) -> None:
    seen: dict[str, set[tuple[str, str, bool]]] = {}
    for row in FieldPlan.everything().rows:
        for instance in (False, True):
            mapping = (
                metric_names.semconv_mapping(row, instance=instance)
                if names == "semconv"
                else metric_names.dcgm_mapping(row, STYLE)
            )
            if mapping is not None:
                metric = mapping.instrument
                seen.setdefault(metric.name, set()).add((metric.unit, metric.kind, metric.whole))
    assert [name for name, kinds in seen.items() if len(kinds) > 1] == []


def test_every_otel_name_in_the_catalogue_is_a_known_instrument() -> None:
    named = {field.otel for field in CATALOGUE if field.otel}
    assert named < INSTRUMENTS.keys()
    assert INSTRUMENTS.keys() - named == {"hw.gpu.memory.utilization"}


def test_every_unit_has_a_ucum_code() -> None:
    assert {field.unit for field in CATALOGUE} <= UCUM.keys()


MAPPINGS: list[tuple[Any, ...]] = [
    # field, of a MIG instance, name, attributes, unit, divisor
    ("gpu_utilization_percent", False, "hw.gpu.utilization", "general", "1", 100),
    ("gpu_utilization_percent", True, "dcgm.gpu_util", "", "%", 1),
    ("graphics_engine_active_ratio", True, "hw.gpu.utilization", "general", "1", 1),
    ("graphics_engine_active_ratio", False, "dcgm.prof.gr_engine_active", "", "1", 1),
    ("memory_copy_utilization_percent", False, "dcgm.mem_copy_util", "", "%", 1),
    ("memory_used_bytes", False, "hw.gpu.memory.usage", "", "By", 1),
    ("memory_free_bytes", False, "dcgm.fb_free", "", "MiBy", 1 << 20),
    ("energy_millijoules", False, "hw.energy", "", "J", 1000),
    ("ecc_corrected_volatile", False, "hw.errors", "corrected", "{error}", 1),
    ("ecc_corrected_aggregate", False, "dcgm.ecc_sbe_agg_total", "", "{error}", 1),
    ("violation_power_nanoseconds", False, "dcgm.power_violation", "", "ns", 1),
    ("nvlink_bandwidth_bytes_per_second", False, "dcgm.nvlink_bandwidth_total", "", "By/s", 1),
    ("power_instant_watts", False, "podgpu.power_instant", "", "W", 1),
    ("processes", False, "podgpu.processes", "", "{process}", 1),
    ("nvlink_transmitted_bytes", False, "podgpu.nvlink_transmitted", "", "By", 1),
    ("xid_last", False, "dcgm.xid_errors", "", "", 1),
]


@pytest.mark.parametrize(
    ("field", "instance", "expected"),
    [(field, instance, expected) for field, instance, *expected in MAPPINGS],
    ids=str,
)
def test_names_units_and_divisors_of_selected_fields(
    field: str, instance: bool, expected: list[str | int]
) -> None:
    found = mapping_of(field, instance=instance)
    assert found is not None
    attr = "".join(value for _, value in found.attrs)
    assert [found.instrument.name, attr, found.instrument.unit, found.divisor] == expected


@pytest.mark.parametrize("field", ["gpu_up", "row_remap_failed"])
def test_fields_that_are_part_of_hw_status_have_no_own_metric(field: str) -> None:
    assert mapping_of(field) is None


def test_prometheus_converts_podgpu_names_to_those_of_the_page() -> None:
    """Except for MHz, which Prometheus does not translate."""
    different = {}
    for field in CATALOGUE:
        found = metric_names.semconv_mapping(Row(field), instance=False)
        if found is None or not found.instrument.name.startswith("podgpu."):
            continue
        metric = found.instrument
        name = name_of(metric.name, metric.unit, metric.kind)
        if name != field.podgpu_metric:
            different[field.podgpu_metric] = name
    assert all(name.replace("MHz", "mhz") == page for page, name in different.items())
    for otlp, family in (*zip(HOLDING, HOLDING_ON_PAGE, strict=True), CONFLICTS):
        assert name_of(otlp.name, otlp.unit, otlp.kind) == family.name


def test_with_dcgm_names_the_counters_file_sets_metric_names() -> None:
    field = by_name("memory_used_bytes")
    assert field is not None
    found = metric_names.dcgm_mapping(Row(field, "dcgm_fb_used", "counter", "Used."), STYLE)
    assert found.instrument.name == "dcgm_fb_used"
    assert found.instrument.kind == "counter"
    assert (found.instrument.description, found.divisor) == ("Used.", 1 << 20)
    own = metric_names.dcgm_mapping(Row(field, "podgpu_memory_used_bytes"), STYLE)
    assert (own.divisor, own.is_own, own.instrument.whole) == (1, True, True)


@pytest.mark.parametrize(
    ("name", "base", "divisor", "whole"),
    [
        ("memory_used_bytes", "DCGM_FI_DEV_FB_USED_BYTES", 1, True),
        ("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK_HERTZ", Fraction(1, 1_000_000), False),
        ("energy_millijoules", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1000, False),
    ],
)
def test_a_dcgm_name_in_a_base_unit_has_values_in_that_unit(
    name: str, base: str, divisor: int | Fraction, whole: bool
) -> None:
    field = by_name(name)
    assert field is not None
    found = metric_names.dcgm_mapping(Row(field, base), STYLE)
    assert (found.divisor, found.is_own, found.instrument.whole) == (divisor, False, whole)
    node = Node()
    node.has(gpu(0))
    node.reads(reading(gpu(0), name, 1755))
    encoder = Encoder("node-1", FieldPlan(rows=[Row(field, base)]), names="dcgm")
    [point] = [each for each in points(encoder.encode(node.snapshot())) if each.name == base]
    assert point.value == 1755 / divisor


TABLE = re.compile(r"^\| field \| .*?(?=^[^|])", re.MULTILINE | re.DOTALL)
METRICS = re.compile(r"^\| metric \| .*?(?=^[^|])", re.MULTILINE | re.DOTALL)


def test_docs_otlp_names_has_the_current_tables() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes its tables again."""
    page = PAGE.read_text(encoding="utf-8")
    fields = "\n".join(_fields()) + "\n"
    metrics = "\n".join(_metrics()) + "\n"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = METRICS.sub(lambda _: metrics, TABLE.sub(lambda _: fields, page))
        PAGE.write_text(page, encoding="utf-8")
    assert TABLE.findall(page) == [fields]
    assert METRICS.findall(page) == [metrics]


def _metrics() -> Iterator[str]:
    yield "| metric | type | unit | values | in Prometheus | |"
    yield "|---|---|---|---|---|---|"
    for metric in INSTRUMENTS.values():
        yield (
            f"| `{metric.name}` | {metric.kind} | `{metric.unit}` | "
            f"{'integers' if metric.whole else 'floats'} | "
            f"`{name_of(metric.name, metric.unit, metric.kind)}` | {metric.description} |"
        )


def _fields() -> Iterator[str]:
    yield "| field | on a GPU | on a MIG instance, where it differs | type | unit | value |"
    yield "|---|---|---|---|---|---|"
    for field in CATALOGUE:
        whole, part = (metric_names.semconv_mapping(Row(field), instance=i) for i in (False, True))
        if whole is None:
            yield f"| `{field.name}` | `hw.status` | | updowncounter | `1` | a state |"
            continue
        metric = whole.instrument
        other = "" if part == whole or part is None else f" {_shown_name(part, field)}"
        unit = f"`{metric.unit}`" if metric.unit else ""
        value = field.unit if whole.divisor == 1 else f"{field.unit} / {whole.divisor}"
        yield (
            f"| `{field.name}` | {_shown_name(whole, field)} |{other} | {metric.kind} | "
            f"{unit} | {value} |".replace("|  |", "| |")
        )


def _shown_name(found: FieldMapping, field: Field) -> str:
    attrs = "".join(f"{{{name}={value}}}" for name, value in found.attrs)
    if field.name == "xid_errors":
        attrs = "{error.type=xid_N}"
    return f"`{found.instrument.name}{attrs}`"
