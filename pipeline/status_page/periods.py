"""Hours and days of a status document, from the hourly totals of a ledger."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from pipeline.ledger.schema import HOUR_NS
from pipeline.model.ledger_usage import HourTotal
from pipeline.status_page.daemon_state import date
from pipeline.status_page.last_day_usage import DAY_NS, LastDayUsage
from pipeline.status_page.usage_format import PeriodStatus
from pipeline.status_page.use_format import LARGEST


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
    parts = [_parts(one) for one in hours]
    busy_s, idle_s, free_s, unknown_s = (_seconds(sum(each)) for each in zip(*parts, strict=True))
    return PeriodStatus(
        since=date(start_ns),
        until=date(end_ns),
        allocated_ratio=_part(sum(one.held_ns for one in hours), known),
        used_ratio=_part(sum(busy), accounted) if busy else None,
        busy_seconds=busy_s,
        idle_seconds=idle_s,
        free_seconds=free_s,
        unknown_seconds=unknown_s,
        energy_joules=min(max(sum(energy) / 1e3, 0.0), LARGEST) if energy else None,
    )


def _parts(one: HourTotal) -> tuple[int, int, int, int]:
    """Return busy, idle, free and unknown time, which are together all time with usage data.

    Busy time beyond the held time is of processes on devices that no container held, and is taken
    from the free time. Held time whose busy part is unknown is unknown.
    """
    whole = max(one.accounted_ns, 0)
    unknown = min(max(one.unknown_ns, 0), whole)
    held = min(max(one.held_ns, 0), whole - unknown)
    if one.busy_ns is None:
        return 0, 0, whole - unknown - held, unknown + held
    busy = min(max(one.busy_ns, 0), whole - unknown)
    idle = max(held - busy, 0)
    return busy, idle, whole - unknown - busy - idle, unknown


def _seconds(ns: int) -> float:
    return min(round(ns / 1e9, 3), LARGEST)


def _part(some: int, whole: int) -> float | None:
    return round(min(some / whole, 1.0), 6) if whole > 0 else None
