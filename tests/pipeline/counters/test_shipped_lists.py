"""The lists that podgpu ships have the rows of dcgm-exporter's lists; all but one can be used."""

import csv
from importlib.resources import files

import pytest

from config.schema import Counters
from pipeline.counters.csv_rows import CsvRow, read
from pipeline.counters.plan_builder import planned

DEFAULT, PROFILING, FIRST = (
    "default-counters.csv",
    "dcp-metrics-included.csv",
    "1.x-compatibility-metrics.csv",
)
HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"


def text_of(name: str) -> str:
    return files("config").joinpath("counters", name).read_text(encoding="utf-8")


def with_all(text: str) -> str:
    """Return the list with its commented rows activated, but no name twice."""
    names = {row.name for row in read(text) if isinstance(row, CsvRow)}
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
def test_the_shipped_lists_have_the_rows_of_dcgm_exporter(name: str, rows: int, every: int) -> None:
    found = list(read(text_of(name)))
    assert len(found) == rows
    assert len(list(read(with_all(text_of(name))))) == every
    assert all(isinstance(row, CsvRow) and row.help for row in found)


@pytest.mark.parametrize("name", [DEFAULT, PROFILING, FIRST])
def test_dcgm_exporter_can_read_the_shipped_lists(name: str) -> None:
    """It exits at a row without exactly three cells; users who go back to it may copy a list."""
    rows = list(csv.reader(with_all(text_of(name)).splitlines()))
    assert [row for row in rows if len(row) != 3] == []


@pytest.mark.parametrize("name", [DEFAULT, PROFILING, FIRST])
def test_each_row_of_the_shipped_lists_can_be_used(name: str) -> None:
    reading = planned(text_of(name), Counters(own=False))
    assert reading.complaints == ()
    assert reading.plan is not None
    assert len(reading.plan.rows) + len(reading.plan.labels) == len(list(read(text_of(name))))


@pytest.mark.parametrize(("name", "absent"), [(DEFAULT, [HEALTH]), (PROFILING, []), (FIRST, [])])
def test_each_commented_row_can_be_activated(name: str, absent: list[str]) -> None:
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
"""Rows in which the lists of dcgm-exporter 4.6.0-4.8.3 differ from the earlier ones."""


SINCE_4_7 = {
    "DCGM_FI_DEV_SM_CLOCK": "DCGM_FI_DEV_SM_CLOCK_HERTZ",
    "DCGM_FI_DEV_MEM_CLOCK": "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
    "DCGM_FI_DEV_MEMORY_TEMP": "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
    "DCGM_FI_DEV_ENC_UTIL": "DCGM_FI_DEV_ENC_UTIL_RATIO",
    "DCGM_FI_DEV_DEC_UTIL": "DCGM_FI_DEV_DEC_UTIL_RATIO",
    "DCGM_FI_DEV_XID_ERRORS": "DCGM_FI_DEV_XID_ERROR",
    "DCGM_FI_DEV_FB_FREE": "DCGM_FI_DEV_FB_FREE_BYTES",
    "DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES",
    "DCGM_FI_DEV_FB_RESERVED": "DCGM_FI_DEV_FB_RESERVED_BYTES",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "DCGM_FI_DEV_ROW_REMAP_FAILED",
    "DCGM_FI_DRIVER_VERSION": "DCGM_FI_SYSTEM_DRIVER_VERSION",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
    "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
}
"""The name that each row of the default list has in DCGM 4.7, if it has another one."""


def test_the_default_list_with_the_names_of_dcgm_4_7_has_the_same_fields() -> None:
    text = text_of(DEFAULT)
    newer = text
    for before, since in SINCE_4_7.items():
        assert f"\n{before}," in text
        newer = newer.replace(f"\n{before},", f"\n{since},")
    plan, expected = (planned(each, Counters(own=False)) for each in (newer, text))
    assert plan.complaints == ()
    assert plan.plan is not None
    assert expected.plan is not None
    assert plan.plan.fields == expected.plan.fields
    assert [row.metric for row in plan.plan.rows] == [
        SINCE_4_7.get(row.metric, row.metric) for row in expected.plan.rows
    ]


def test_rows_of_newer_lists_can_be_used_or_are_reported_with_an_alternative() -> None:
    complaints = [str(each) for each in planned(NEWER, Counters()).complaints]
    assert len(complaints) == 11
    for text in complaints:
        assert "is not available: " in text
        assert "; DCGM_" in text
