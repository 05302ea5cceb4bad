"""The lists that come with podgpu name what dcgm-exporter's do, and can be given but for one."""

import csv
from importlib.resources import files

import pytest

from config.schema import Counters
from pipeline.counters.csv_rows import read
from pipeline.counters.plan_builder import planned
from pipeline.counters.unavailable_fields import ABSENT
from pipeline.fields import called

DEFAULT, PROFILING, FIRST = (
    "default-counters.csv",
    "dcp-metrics-included.csv",
    "1.x-compatibility-metrics.csv",
)
HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"


def text_of(name: str) -> str:
    return files("config").joinpath("counters", name).read_text(encoding="utf-8")


def with_all(text: str) -> str:
    """The list with the rows that are comments, but for those of a name that is there anyway."""
    names = {row.name for row in read(text)[0]}
    lines = []
    for line in text.splitlines():
        row = line.removeprefix("# ")
        name, _, rest = row.partition(", ")
        rest = rest.partition(", ")[0]
        if rest in ("gauge", "counter", "label") and (line == row or name not in names):
            lines.append(row)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "rows", "every"), [(DEFAULT, 26, 61), (PROFILING, 26, 57), (FIRST, 20, 39)]
)
def test_the_rows_are_dcgm_exporter_s(name: str, rows: int, every: int) -> None:
    found, complaints = read(text_of(name))
    assert complaints == []
    assert len(found) == rows
    assert len(read(with_all(text_of(name)))[0]) == every
    assert all(row.help for row in found)


@pytest.mark.parametrize("name", [DEFAULT, PROFILING, FIRST])
def test_dcgm_exporter_itself_can_read_them(name: str) -> None:
    """It ends at a row that has not three cells; whoever goes back to it may have copied a list."""
    rows = list(csv.reader(with_all(text_of(name)).splitlines()))
    assert [row for row in rows if len(row) != 3] == []


@pytest.mark.parametrize("name", [DEFAULT, PROFILING, FIRST])
def test_each_row_can_be_given(name: str) -> None:
    reading = planned(text_of(name), Counters(own=False))
    assert reading.complaints == ()
    assert reading.plan is not None
    assert len(reading.plan.rows) + len(reading.plan.labels) == len(read(text_of(name))[0])


@pytest.mark.parametrize(("name", "absent"), [(DEFAULT, [HEALTH]), (PROFILING, []), (FIRST, [])])
def test_each_comment_can_be_taken_away(name: str, absent: list[str]) -> None:
    complaints = planned(with_all(text_of(name)), Counters()).complaints
    assert [str(complaint).split()[2] for complaint in complaints] == absent


NEWER = """\
DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, Clock events
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, Clock events
DCGM_EXP_XID_ERRORS_COUNT, gauge, XID errors
DCGM_EXP_XID_ERRORS_TOTAL, counter, XID errors
DCGM_EXP_P2P_STATUS, gauge, Peers
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, gauge, NVLink
DCGM_FI_DEV_NVLINK_BANDWIDTH_L0, counter, NVLink
DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL, counter, Cycles
DCGM_FI_PROF_SM_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_DMMA_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_HMMA_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_IMMA_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_DFMA_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL, counter, Bytes
DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL, counter, Bytes
DCGM_FI_PROF_INT_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_FP64_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_FP32_CYCLES_ACTIVE_TOTAL, counter, Cycles
DCGM_FI_PROF_FP16_CYCLES_ACTIVE_TOTAL, counter, Cycles
"""
"""What the lists of dcgm-exporter 4.6.0-4.8.3 have otherwise than those before."""


def test_what_newer_lists_have_is_given_or_reported_of_with_the_way_out() -> None:
    complaints = [str(each) for each in planned(NEWER, Counters()).complaints]
    assert len(complaints) == 12
    for said in complaints:
        assert "is not available: " in said
        assert "; DCGM_" in said


@pytest.mark.parametrize("name", ABSENT)
def test_the_way_out_is_one(name: str) -> None:
    """What stands there in a field's place is a field."""
    first = ABSENT[name][1].split()[0]
    assert not first.lower().startswith("dcgm_") or list(called(first))
