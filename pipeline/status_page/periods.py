"""Hours and days of a status document, from the hourly totals of a ledger."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from pipeline.ledger.schema import HOUR_NS
from pipeline.model.ledger_usage import HourTotal
from pipeline.status_page.daemon_state import date
from pipeline.status_page.last_day_usage import DAY_NS, LastDayUsage
from pipeline.status_page.use_format import LARGEST, PeriodStatus


def hours_of(usage: LastDayUsage) -> tuple[PeriodStatus, ...]:
    """Return the hours of the last 24 hours that have usage data."""
    if usage.report is None:
        return ()
    first_ns = usage.report.window.end_ns - DAY_NS
    found = (one for one in usage.hours if one.start_ns + HOUR_NS > first_ns)
    return _periods(usage, found, HOUR_NS)


def days_of(usage: LastDayUsage) -> tuple[PeriodStatus, ...]:
    """Return the days that have usage data."""
    return _periods(usage, usage.hours, DAY_NS)


def _periods(
    usage: LastDayUsage, hours: Iterable[HourTotal], length_ns: int
) -> tuple[PeriodStatus, ...]:
    groups = groupby(hours, lambda one: one.start_ns // length_ns)
    return tuple(_period(usage, number * length_ns, length_ns, [*each]) for number, each in groups)


def _period(
    usage: LastDayUsage, start_ns: int, length_ns: int, hours: Sequence[HourTotal]
) -> PeriodStatus:
    accounted = sum(one.accounted_ns for one in hours)
    known = accounted - sum(one.unknown_ns for one in hours)
    busy = [one.busy_ns for one in hours if one.busy_ns is not None]
    energy = [one.energy_mj for one in hours if one.energy_mj is not None]
    end_ns = start_ns + length_ns
    if usage.report is not None:
        end_ns = max(min(end_ns, usage.report.window.end_ns), start_ns)
    return PeriodStatus(
        since=date(start_ns),
        until=date(end_ns),
        allocated_ratio=_part(sum(one.held_ns for one in hours), known),
        used_ratio=_part(sum(busy), accounted) if busy else None,
        energy_joules=min(max(sum(energy) / 1e3, 0.0), LARGEST) if energy else None,
    )


def _part(some: int, whole: int) -> float | None:
    return round(min(some / whole, 1.0), 6) if whole > 0 else None
