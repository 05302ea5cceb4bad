"""Format reports and lists of holdings as text tables.

A number that is not 0 is never shown as 0, but for example as `<1%`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from fractions import Fraction
from typing import Final

from pipeline.ledger.queries import HoldingRecord
from pipeline.ledger.reports import Report, Row, Sum, device_names
from pipeline.ledger.reports.groups import placed_device_names
from pipeline.model import split_error_ns
from pipeline.model.ledger_usage import UsageWindow
from pipeline.status_page.display_text import holder_name
from podgpu.cli.terminal_text import MARK, Column, laid_out, terminal_safe
from podgpu.cli.usage.report_heading import has_instances, header, wrapped
from podgpu.cli.usage.time_span import local
from podgpu.cli.usage.units import ENERGIES, MEMORIES, Scale, digits_of, scaled, span
from podgpu.cli.usage.xid_notes import xid_notes

FREE: Final = "(free)"
UNKNOWN: Final = "(unknown)"
UNATTRIBUTED: Final = "(unattributed)"
TOTAL: Final = "(total)"


def marked(total: Sum[int], scale: Scale) -> str:
    """Return a sum as text; empty if unknown, with the mark `*` if incomplete."""
    if total.known is None:
        return ""
    return scale.text(total.known) + (MARK if total.partial else "")


NOTHING: Final = "-"
"""Text of a cell without a value, or with an unknown one."""


def percent(part: Fraction | None) -> str:
    """Return a fraction in per cent as text, without decimal places; `-` if unknown."""
    if part is None:
        return NOTHING
    return f"{scaled(part.numerator * 100, part.denominator, 0)}%"


NONE: Final = "none"
"""Text of the idle time of a group that was busy for longer than it held devices."""


def report_lines(
    report: Report, width: int, *, one_device: bool = False, tz: tzinfo = UTC
) -> list[str]:
    """Return the lines of the report.

    Args:
        report: the report.
        width: width of the terminal; 0 if there is none, so that nothing is cut.
        one_device: whether the report is of one chosen GPU, which the first line then names.
        tz: the time zone of the report.
    """
    window = report.window
    # The row of a device includes its free and unknown time, and its unattributed usage.
    of_devices = report.by.is_of_devices
    without_container = () if of_devices else report.without_container
    all_rows = (*report.rows, *without_container, report.total)
    times = Scale.of_times(_times(all_rows))
    energies = Scale.of_energies(row.energy_mj.known or 0 for row in all_rows)
    symbol = times.unit.symbol.upper()

    def shown(text: Callable[[Row], str], *without: Row | None) -> Callable[[Row], str]:
        """Return a function for a cell, with `-` in rows to which the column does not apply."""
        excluded = {id(each) for each in without}  # a report by pod has many rows
        return lambda row: NOTHING if id(row) in excluded else text(row)

    free, unknown, unattributed = report.without_container
    # In other groupings, only the rows without a container and the total have such time.
    groups = () if of_devices else report.rows
    no_free, no_unknown = (*groups, unknown, unattributed), (*groups, free, unattributed)
    by = str(report.by).upper() if report.by.kind != "label" else str(report.by)
    cells: list[tuple[Column, Callable[[Row], str]]] = [
        (Column(by, name=True), lambda row: _name(report, row)),
        (
            Column(f"HELD {symbol}"),
            shown(lambda row: times.text(row.held_ns), free, unknown, unattributed),
        ),
        (Column(f"FREE {symbol}", rank=1), shown(lambda row: times.text(row.free_ns), *no_free)),
        (
            Column(f"UNKNOWN {symbol}", rank=2),
            shown(lambda row: times.text(row.unknown_ns), *no_unknown),
        ),
        (Column(f"BUSY {symbol}"), shown(lambda row: marked(row.busy_ns, times), free, unknown)),
        (
            Column(f"± {symbol}", rank=6),
            shown(lambda row: _error(row, times), *report.without_container),
        ),
        (Column(f"IDLE {symbol}"), lambda row: _idle(report, row, times)),
        (Column("ALLOC", rank=3), lambda row: percent(row.allocated)),
        (Column("USED", rank=4), _used),
        (
            Column(energies.unit.symbol.upper()),
            shown(lambda row: marked(row.energy_mj, energies), free, unknown),
        ),
        (
            Column("HOLDINGS", rank=5),
            shown(lambda row: _count(row.holdings), free, unknown, unattributed),
        ),
    ]
    if report.total.holdings is None:
        del cells[-1]
    if not any(row.busy_error_ns for row in all_rows):
        del cells[5]
    if report.prices.charges_time or report.prices.charges_energy:
        cells.append((Column(report.prices.currency or "COST"), _cost))
    rows = [[text(row) for _, text in cells] for row in all_rows]
    columns = [column for column, _ in cells]
    notes = [line for note in _notes(report, rows) for line in wrapped(note, width)]
    what = f"by {report.by}"
    if one_device:
        what = f"{_chosen(window)}, {what}"
    above = header(window, what, times, width, tz)
    return [*above, "", *laid_out(columns, rows, width), *notes]


def _chosen(window: UsageWindow) -> str:
    """Return the name of the chosen GPU; its MIG instances are only counted."""
    first, *others = map(terminal_safe, device_names(window.totals).values())
    number = len(others)
    return first + (f" with {number} MIG instance{'s' * (number > 1)}" if number else "")


def _times(rows: Iterable[Row]) -> Iterator[int]:
    for row in rows:
        yield from (row.held_ns, row.free_ns, row.unknown_ns)
        yield from (row.busy_ns.known or 0, max(row.idle_ns.known or 0, 0))


def _name(report: Report, row: Row) -> str:
    if row.key is not None:
        return row.key.name
    names = zip(report.without_container, (FREE, UNKNOWN, UNATTRIBUTED), strict=True)
    return next((name for each, name in names if row is each), TOTAL)


def _idle(report: Report, row: Row, times: Scale) -> str:
    if any(row is each for each in report.without_container):
        return NOTHING  # no container held a device that it could leave idle
    if row.idle_ns.known is not None and row.idle_ns.known < 0:
        return NONE + (MARK if row.idle_ns.partial else "")
    return marked(row.idle_ns, times)


def _error(row: Row, times: Scale) -> str:
    return "" if row.busy_error_ns is None else times.text(row.busy_error_ns)


def _used(row: Row) -> str:
    return percent(row.used) + (MARK if row.used is not None and row.busy_ns.partial else "")


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _cost(row: Row) -> str:
    return "" if row.cost is None else f"{row.cost}{MARK if row.cost_partial else ''}"


def _notes(report: Report, rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the notes below the table that explain marks and empty cells."""
    cells = [cell for row in rows for cell in row[1:] if cell != NOTHING]
    if any(cell.endswith(MARK) for cell in cells):
        yield f"{MARK} incomplete: a part of this value is unknown"
    if "" in cells:
        yield "empty cell: unknown"
    if any(row.busy_error_ns for row in report.rows):
        yield "±: by how much BUSY may be wrong, because devices were shared"
    if any(cell.startswith(NONE) for cell in cells):
        yield (
            f"{NONE}: busy for longer than its share of the time. IDLE of {TOTAL} is HELD minus "
            "BUSY of all rows"
        )
    if all(row.key and not any(part is not None for part in row.key.parts) for row in report.rows):
        yield from _without_groups(report)
    if report.prices.charges_time and has_instances(report.window):
        yield (
            "a MIG instance costs a part of the GPU price, in proportion to its compute slices; "
            "slices in no instance are not priced"
        )
    if report.by.is_of_devices and (report.prices.charges_time or report.prices.charges_energy):
        yield "the cost of devices includes free and unknown time, and usage of no known container"


def _without_groups(report: Report) -> Iterator[str]:
    """Yield a note about a report whose only group is `(none)`, or that has no group."""
    by = report.by
    if by.kind == "label":
        yield f"no pod has the label {by.label}; check the option labels of the pods source"
    elif by.kind == "image":
        yield "no container without a pod held a device; the source docker reports them"
    elif by.is_of_facts:
        which = "" if by.kind == "job" else f" with a known {by.kind}"
        yield f"no job{which} held a device; the source slurm reports jobs"
    elif by.kind == "namespace" and report.rows:
        yield (
            "only pods are in a namespace: group jobs by job, user, account or partition, and "
            "containers without pods by pod or image"
        )


def holding_lines(
    window: UsageWindow, holdings: Sequence[HoldingRecord], width: int, tz: tzinfo = UTC
) -> list[str]:
    """Return the lines of the table of holdings.

    Args:
        window: usage in the same time span, for the lines above the table.
        holdings: the holdings, each for one row.
        width: width of the terminal; 0 if there is none, so that nothing is cut.
        tz: the time zone of the list.
    """
    count = f"{len(holdings)} holding{'' if len(holdings) == 1 else 's'}"
    names = placed_device_names(window.totals)
    shown = [
        replace(each, device=names.get((each.cluster, each.node, each.device), each.device))
        for each in holdings
    ]
    cells = dict(_HOLDING)
    if not any(map(_error_of_holding, holdings)):
        del cells[_ERROR]
    cells[_START] = lambda one: local(one.start_ns, tz, "%Y-%m-%d %H:%M:%S")
    rows = [[text(each) for text in cells.values()] for each in shown]
    columns = list(cells)
    times = Scale.of_times([sum(total.accounted_ns + total.gap_ns for total in window.totals)])
    notes = [line for note in xid_notes(holdings) for line in wrapped(note, width)]
    return [*header(window, count, times, width, tz), "", *laid_out(columns, rows, width), *notes]


def _duration(one: HoldingRecord) -> str:
    return f"{span(one.counted_ns + one.gap_ns)}{_CONTINUES if one.end_ns is None else ''}"


def _error_of_holding(one: HoldingRecord) -> str:
    error = split_error_ns(one.contested_ns, one.switching_ns)
    return span(error) if error else ""


def _watt_hours(energy_mj: int | None) -> str:
    if energy_mj is None:
        return ""
    unit = ENERGIES[1]
    return Scale(unit, digits_of(energy_mj, unit.size), ENERGIES).text(energy_mj)


def _gib(count: int | None) -> str:
    return "" if count is None else Scale(MEMORIES[0], 1, MEMORIES).text(count)


def _percent(ppm: int | None) -> str:
    return "" if ppm is None else f"{scaled(ppm, _PERCENT_PPM, 0)}%"


def _xids(one: HoldingRecord) -> str:
    return " ".join(f"{code}x{count}" if count > 1 else f"{code}" for code, count in one.xids)


_PERCENT_PPM: Final = 10_000
_CONTINUES: Final = " so far"
"""Mark of the length of a holding that continues."""

_START: Final = Column("START")
_ERROR: Final = Column("±", rank=10)
_HOLDING: Final[tuple[tuple[Column, Callable[[HoldingRecord], str]], ...]] = (
    (Column("CONTAINER", name=True, least=24), lambda one: holder_name(one.container.subject)),
    (Column("DEVICE", name=True, rank=6), lambda one: one.device),
    (_START, lambda one: local(one.start_ns, UTC, "%Y-%m-%d %H:%M:%S")),
    (Column("LENGTH"), _duration),
    (Column("HELD"), lambda one: span(one.held_ns)),
    (Column("BUSY"), lambda one: "" if one.busy_ns is None else span(one.busy_ns)),
    (_ERROR, _error_of_holding),
    (Column("WH", rank=1), lambda one: _watt_hours(one.energy_mj)),
    (Column("PEAK GIB", rank=3), lambda one: _gib(one.memory_peak_bytes)),
    (Column("MEAN GIB", rank=5), lambda one: _gib(one.memory_mean_bytes)),
    (Column("MEAN BUSY", rank=4), lambda one: _percent(one.busy_mean_ppm)),
    (Column("PEAK BUSY", rank=7), lambda one: _percent(one.busy_peak_ppm)),
    (Column("XIDS", name=True, rank=2), _xids),
    (Column("NO DATA", rank=8), lambda one: span(one.gap_ns) if one.gap_ns else ""),
    (Column("SOURCE", name=True, rank=9), lambda one: one.source),
)
"""Columns of the table of holdings, each with a function that returns the text of a cell."""
