"""The plan that results from a list and the setting, and warnings about unusable rows.

`PODGPU_WRITE_GOLDEN=1` writes the golden file; check the difference before you commit it.
"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema import Counters
from pipeline.counters.plan_builder import default_plan, planned, warning
from pipeline.fields import CATALOGUE, LABELS, FieldPlan, in_group
from pipeline.fields.dcgm_names import dcgm_names

GOLDEN = Path(__file__).parents[2] / "golden" / "counters" / "warning.txt"
ALONE = Counters(own=False)
NO_ROWS = "c.csv: no row of the list can be used; the effect"

HOSTILE = """\
# A list with one row that is good, and others.
DCGM_FI_DEV_GPU_UTIL, gauge, Load.
DCGM_FI_DEV_GPU_UTL, gauge, a slip
dcgm_fi_dev_sm_clock, gauge, wrong case
DCGM_FI_DEV_FOO_BAR, gauge, nothing like it
DCGM_EXP_GPU_HEALTH_STATUS, gauge, DCGM's own
DCGM_FI_DEV_PCIE_TX_THROUGHPUT, counter, of older lists
DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, no GPU
DCGM_FI_DEV_SERIAL, gauge, a text
DCGM_FI_DEV_FB_USED, label, a number
DCGM_FI_DEV_FB_FREE, histogram, no histogram
DCGM_FI_DEV_FB_FREE, guage, no type
DCGM_FI_DEV_GPU_UTIL, gauge, again
dcgm_gpu_utilization, gauge, another name
gpu_utilization_percent, gauge, podgpu's name
podgpu_gpu_utilization_percent, gauge, the same name with its prefix
DCGM_FI_DRIVER_VERSION, label, Driver
DCGM_FI_DRIVER_VERSION, label, Driver again
DCGM_FI_DEV_DEC_UTIL
DCGM_FI_DEV_DEC_UTIL, gauge, "open
 ; , x
"""


def shown(plan: FieldPlan | None) -> list[tuple[str, str, str, str]]:
    assert plan is not None
    return [(row.field.name, row.metric, row.type, row.help) for row in plan.rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "DCGM_FI_DEV_FB_USED, gauge, Used.",
            [("memory_used_bytes", "DCGM_FI_DEV_FB_USED", "gauge", "Used.")],
            id="DCGM's name",
        ),
        pytest.param(
            "dcgm_fb_used, gauge, Used.",
            [("memory_used_bytes", "dcgm_fb_used", "gauge", "Used.")],
            id="1.x name",
        ),
        pytest.param(
            "podgpu_memory_used_bytes, gauge, Used.",
            [("memory_used_bytes", "podgpu_memory_used_bytes", "gauge", "Used.")],
            id="podgpu's name",
        ),
        pytest.param(
            "DCGM_EXP_XID_ERRORS_TOTAL, counter, Of new releases.",
            [("xid_errors", "DCGM_EXP_XID_ERRORS_TOTAL", "counter", "Of new releases.")],
            id="name of a newer release",
        ),
        pytest.param(
            "DCGM_FI_DEV_BOARD_POWER_WATTS, gauge, Power.",
            [("power_watts", "DCGM_FI_DEV_BOARD_POWER_WATTS", "gauge", "Power.")],
            id="name since DCGM 4.6",
        ),
        pytest.param(
            "DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, Clock.",
            [("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK_HERTZ", "gauge", "Clock.")],
            id="name since DCGM 4.7, in a base unit",
        ),
        pytest.param(
            "DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, New.\nDCGM_FI_DEV_GPU_TEMP, gauge, Old.",
            [
                ("gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "gauge", "New."),
                ("gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", "gauge", "Old."),
            ],
            id="the old and the new name: both",
        ),
        pytest.param(
            "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL, counter, Sum.\nDCGM_FI_PROF_PCIE_TX_BYTES, gauge, R",
            [
                ("pcie_transmitted_bytes", "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", "counter", "Sum."),
                ("pcie_transmit_bytes_per_second", "DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "R"),
            ],
            id="the counter and the rate",
        ),
        pytest.param(
            "memory_used_bytes, gauge",
            [("memory_used_bytes", "podgpu_memory_used_bytes", "gauge", "")],
            id="name of the field",
        ),
        pytest.param(
            "DCGM_FI_PROF_PCIE_TX_BYTES, gauge, Rate.",
            [("pcie_transmit_bytes_per_second", "DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Rate.")],
            id="the rate",
        ),
        pytest.param(
            "DCGM_FI_PROF_PCIE_TX_BYTES, counter, Bytes.",
            [("pcie_transmitted_bytes", "DCGM_FI_PROF_PCIE_TX_BYTES", "counter", "Bytes.")],
            id="the counter",
        ),
        pytest.param(
            "DCGM_EXP_XID_ERRORS_COUNT, counter, XIDs.",
            [("xid_errors_in_window", "DCGM_EXP_XID_ERRORS_COUNT", "counter", "XIDs.")],
            id="typed as dcgm-exporter types it",
        ),
        pytest.param(
            "DCGM_FI_DEV_GPU_TEMP, untyped, T.\nDCGM_FI_DEV_PCIE_REPLAY_COUNTER, Untyped, P.",
            [
                ("gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", "gauge", "T."),
                ("pcie_replays", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "P."),
            ],
            id="untyped: the type of the field",
        ),
        pytest.param(
            "DCGM_FI_PROF_PCIE_TX_BYTES, counter, B\nDCGM_FI_PROF_PCIE_TX_BYTES, gauge, R",
            [("pcie_transmitted_bytes", "DCGM_FI_PROF_PCIE_TX_BYTES", "counter", "B")],
            id="the same name twice: the first row",
        ),
    ],
)
def test_the_metric_has_the_name_type_and_help_of_its_row(
    text: str, expected: list[tuple[str, str, str, str]]
) -> None:
    assert shown(planned(text, ALONE).plan) == expected


@pytest.mark.parametrize("type_", ["gauge", "counter", "label"])
@pytest.mark.parametrize("name", ["DCGM_FI_DEV_UUID", "DCGM_FI_DEV_PCI_BUS_ID"])
def test_a_field_that_identifies_the_device_is_no_metric(name: str, type_: str) -> None:
    """A string as a value would make the whole page invalid."""
    found = planned(f"{name}, {type_}, x\nDCGM_FI_DEV_FB_USED, gauge, Used.", ALONE)
    assert shown(found.plan) == [("memory_used_bytes", "DCGM_FI_DEV_FB_USED", "gauge", "Used.")]
    assert [text.partition(":")[0] for text in found.complaints] == ["line 1"]


def test_a_label_has_the_name_of_its_row() -> None:
    plan = planned(
        "DCGM_FI_DRIVER_VERSION, label, V\nserial, label\nDCGM_FI_DEV_GPU_BRAND, label\n"
        "dcgm_fb_used, gauge",
        ALONE,
    ).plan
    assert plan is not None
    assert [(row.label, row.field) for row in plan.labels] == [
        ("DCGM_FI_DRIVER_VERSION", "driver_version"),
        ("serial", "serial"),
        ("DCGM_FI_DEV_GPU_BRAND", "brand"),
    ]


def test_all_ignored_rows_are_listed_in_one_warning() -> None:
    reading = planned(HOSTILE, ALONE)
    assert [row[:2] for row in shown(reading.plan)] == [
        ("gpu_utilization_percent", "DCGM_FI_DEV_GPU_UTIL"),
        ("gpu_utilization_percent", "dcgm_gpu_utilization"),
        ("gpu_utilization_percent", "podgpu_gpu_utilization_percent"),
    ]
    text = warning("/etc/podgpu/counters.csv", reading, "") + "\n"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", NO_ROWS),
        (
            "# DCGM_FI_DEV_FB_USED, gauge\n",
            NO_ROWS,
        ),
        (
            "hello\n",
            NO_ROWS + ':\n  line 1: "hello" has no type; write FIELD, type, help',
        ),
        (
            "DCGM_FI_DRIVER_VERSION, label",
            NO_ROWS,
        ),
    ],
    ids=["empty", "comments", "garbage", "only labels"],
)
def test_a_list_without_usable_rows_gives_no_plan(text: str, expected: str) -> None:
    reading = planned(text, Counters())
    assert reading.plan is None
    assert warning("c.csv", reading, "the effect") == expected


@pytest.mark.parametrize("name", sorted((each.name for each in dcgm_names()), key=len)[-3:])
def test_a_name_of_dcgm_is_never_shortened(name: str) -> None:
    [complaint] = planned(f"{name}, histogram, x", Counters()).complaints
    assert complaint.startswith(f"line 1: {name} ")


def test_both_names_of_a_text_are_labels() -> None:
    names = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION")
    rows = ["DCGM_FI_DEV_GPU_TEMP, gauge", *(f"{name}, label" for name in names)]
    reading = planned("\n".join(rows), ALONE)
    assert reading.plan is not None
    assert reading.complaints == ()
    assert [(row.label, row.field) for row in reading.plan.labels] == [
        (name, "driver_version") for name in names
    ]


def test_a_valid_list_causes_no_warning() -> None:
    assert warning("c.csv", planned("dcgm_fb_used, gauge, Used", Counters()), "") == ""


@pytest.mark.slow
def test_only_the_first_problems_are_listed_and_the_others_counted() -> None:
    text = "".join(f"DCGM_FI_DEV_GPU_UTL{at}, gauge\n" for at in range(5000))
    lines = warning("c.csv", planned(f"{text}dcgm_fb_used, gauge", Counters()), "").splitlines()
    assert lines[0] == "c.csv: 5000 rows are ignored:"
    assert lines[-1] == "  4900 more are not listed; podgpu fields NAME has the answer for each"
    assert len(lines) == 102


LISTED = "DCGM_FI_DEV_FB_USED, gauge, Used.\n"


@pytest.mark.parametrize(
    ("setting", "listed", "included", "excluded"),
    [
        (Counters(), "", {"gpu_utilization_percent", "gpu_up"}, {"sm_active_ratio"}),
        (Counters(own=False), "", {"gpu_utilization_percent"}, {"gpu_up", "processes"}),
        (Counters(also=("profiling",)), "", {"sm_active_ratio", "gpu_up"}, {"nvlink_up"}),
        (Counters(also=("all",)), "", {field.name for field in CATALOGUE}, set()),
        (Counters(), LISTED, {"memory_used_bytes", "gpu_up"}, {"memory_free_bytes"}),
        (Counters(own=False), LISTED, {"memory_used_bytes"}, {"gpu_up", "memory_free_bytes"}),
        (
            Counters(own=False, also=("links", "DCGM_FI_DEV_FB_FREE", "power_watts")),
            LISTED,
            {"memory_used_bytes", "nvlink_up", "memory_free_bytes", "power_watts"},
            {"gpu_up"},
        ),
    ],
)
def test_the_plan_has_the_listed_fields_and_those_of_the_setting(
    setting: Counters, listed: str, included: set[str], excluded: set[str]
) -> None:
    plan = planned(listed, setting).plan if listed else default_plan(setting)
    assert plan is not None
    names = {field.name for field in plan.fields}
    assert included <= names
    assert not (excluded & names)


def test_without_a_setting_the_plan_is_the_default_plan() -> None:
    assert default_plan(Counters()) == FieldPlan()


def test_a_group_adds_all_its_fields() -> None:
    for group in ("profiling", "statistics", "links", "health", "limits", "details"):
        plan = default_plan(Counters(own=False, also=(group,)))
        assert set(in_group(group)) <= {field.name for field in plan.fields}


def test_a_label_that_the_setting_adds_has_the_name_used_there() -> None:
    plan = default_plan(Counters(also=("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_SERIAL", "brand")))
    assert [(row.label, row.field) for row in plan.labels] == [
        ("DCGM_FI_DEV_SERIAL", "serial"),
        ("brand", "brand"),
    ]


@pytest.mark.parametrize("kind", ["gauge", "counter"])
def test_metric_names_are_unique(kind: str) -> None:
    """The rate and the counter share DCGM's name; the one that is not listed gets podgpu's."""
    plan = planned(f"DCGM_FI_PROF_PCIE_TX_BYTES, {kind}, x", Counters(also=("all",))).plan
    assert plan is not None
    families = [row.metric or row.field.metric for row in plan.rows]
    assert len(families) == len(set(families)) == len(CATALOGUE)


WORDS = st.sampled_from(
    [f.dcgm or f.name for f in (*CATALOGUE, *LABELS)] + [f.dcgm_1x for f in CATALOGUE] + ["x"]
)
TYPES = st.sampled_from(["gauge", "counter", "label", "histogram", "summary", "other"])


@given(st.lists(st.tuples(WORDS, TYPES, st.text(max_size=8)), max_size=30))
def test_every_row_is_in_the_plan_or_reported(rows: list[tuple[str, str, str]]) -> None:
    text = "".join(f'{name}, {type_}, "{about!r}"\n' for name, type_, about in rows)
    reading = planned(text.replace('"', ""), ALONE)
    used = 0 if reading.plan is None else len(reading.plan.rows) + len(reading.plan.labels)
    if reading.plan is not None:
        assert used + len(reading.complaints) == len(rows)
        families = [row.metric or row.field.metric for row in reading.plan.rows]
        assert len(families) == len(set(families))
        labels = [row.label for row in reading.plan.labels]
        assert len(labels) == len(set(labels))


@given(st.text(), st.booleans())
def test_any_text_is_parsed(text: str, own: bool) -> None:
    reading = planned(text, Counters(own=own))
    warning("c.csv", reading, "")
