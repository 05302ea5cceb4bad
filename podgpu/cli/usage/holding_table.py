"""Format holdings as a text table, one in each line."""

from collections.abc import Sequence
from typing import Final

from pipeline.ledger.queries import HoldingRecord
from pipeline.model import PartialRef
from pipeline.model.usage_window import UsageWindow
from podgpu.cli.usage.number_format import GIB, WH_MJ, digits_of, scaled, span
from podgpu.cli.usage.report_table import header
from podgpu.cli.usage.table_layout import Column, laid_out
from podgpu.cli.usage.time_span import utc

_PERCENT_PPM: Final = 10_000

_COLUMNS: Final = (
    Column("CONTAINER", name=True, least=24),
    Column("DEVICE", name=True, rank=6),
    Column("START"),
    Column("FOR"),
    Column("HELD"),
    Column("BUSY"),
    Column("WH", rank=1),
    Column("GIB PEAK", rank=3),
    Column("MEAN", rank=5),
    Column("USE MEAN", rank=4),
    Column("MAX", rank=7),
    Column("XIDS", name=True, rank=2),
    Column("GAPS", rank=8),
    Column("BY", name=True, rank=9),
)


def holding_lines(window: UsageWindow, holdings: Sequence[HoldingRecord], width: int) -> list[str]:
    """Return the lines of the table.

    Args:
        window: usage in the same time, for the header.
        holdings: the holdings.
        width: width of the terminal; 0 without a terminal, so that nothing is cut.
    """
    count = f"{len(holdings)} holding{'' if len(holdings) == 1 else 's'}"
    rows = [_cells(each) for each in holdings]
    return [*header(window, count, width), "", *laid_out(_COLUMNS, rows, width)]


def container(subject: PartialRef) -> str:
    """Return `namespace/pod (container)`, as far as it is known."""
    pod = subject.pod or f"uid {subject.uid or 'unknown'}"
    whole = f"{subject.namespace}/{pod}" if subject.namespace else pod
    return f"{whole} ({subject.container})" if subject.container else whole


def _cells(one: HoldingRecord) -> list[str]:
    return [
        container(one.container.subject),
        one.device,
        utc(one.start_ns, "%Y-%m-%d %H:%M:%S"),
        f"{span(one.counted_ns + one.gap_ns)}{'+' if one.end_ns is None else ''}",
        span(one.held_ns),
        "" if one.busy_ns is None else span(one.busy_ns),
        ""
        if one.energy_mj is None
        else scaled(one.energy_mj, WH_MJ, digits_of(one.energy_mj, WH_MJ)),
        _gib(one.memory_peak_bytes),
        _gib(one.memory_mean_bytes),
        _percent(one.busy_mean_ppm),
        _percent(one.busy_peak_ppm),
        " ".join(f"{code}x{count}" if count > 1 else f"{code}" for code, count in one.xids),
        span(one.gap_ns) if one.gap_ns else "",
        one.source,
    ]


def _gib(count: int | None) -> str:
    return "" if count is None else scaled(count, GIB, 1)


def _percent(ppm: int | None) -> str:
    return "" if ppm is None else f"{scaled(ppm, _PERCENT_PPM, 0)}%"
