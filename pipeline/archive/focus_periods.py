"""The charge periods of a FOCUS export: days or hours, cut where prices change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from config.time_zones import first_hour

_NS: Final = 10**9
_HOUR: Final = 3_600 * _NS


@dataclass(frozen=True, slots=True)
class ChargePeriod:
    """A span of time that a row of an export is about. All times are ns of Unix time, full hours.

    Attributes:
        start: its start.
        end: its end.
        billing_start: start of the calendar month.
        billing_end: end of the calendar month.
        price_start: start of the span in which no price changes.
    """

    start: int
    end: int
    billing_start: int
    billing_end: int
    price_start: int


def charge_periods(
    start_ns: int, end_ns: int, changes: Sequence[int], tz: tzinfo, *, hourly: bool
) -> Iterator[ChargePeriod]:
    """Yield the charge periods of a span of time. They cover it without holes.

    An hour belongs to the day and the month in which it begins.

    Args:
        start_ns: start of the span, a full hour in ns of Unix time.
        end_ns: end of the span, a full hour.
        changes: the times at which prices change, full hours, sorted.
        tz: the time zone of days and months.
        hourly: whether a period is an hour instead of a day.
    """
    day = datetime.fromtimestamp(start_ns // _NS, tz).date()
    month_of, billing = None, (0, 0)
    at = start_ns
    while at < end_ns:
        day_end = first_hour(day + timedelta(days=1), tz)
        if (day.year, day.month) != month_of:
            month_of, billing = (day.year, day.month), _month(day, tz)
        while at < min(day_end, end_ns):
            next_change = next((each for each in changes if each > at), end_ns)
            until = min(at + _HOUR if hourly else day_end, end_ns, next_change)
            price_start = max((each for each in changes if each <= at), default=start_ns)
            yield ChargePeriod(at, until, *billing, max(price_start, start_ns))
            at = until
        day += timedelta(days=1)


def days_around(first: int, last: int, tz: tzinfo) -> tuple[int, int]:
    """Return the start of the day of one time, and the end of the day of another.

    Args:
        first: a time, in ns of Unix time.
        last: a time that is not earlier.
        tz: the time zone of the days.
    """
    start, end = (datetime.fromtimestamp(each // _NS, tz).date() for each in (first, last))
    return first_hour(start, tz), first_hour(end + timedelta(days=1), tz)


def _month(day: date, tz: tzinfo) -> tuple[int, int]:
    first = day.replace(day=1)
    return first_hour(first, tz), first_hour((first + timedelta(days=31)).replace(day=1), tz)


def timestamp(ns: int) -> datetime:
    """Return a time in ns of Unix time, a full second, as a time in UTC."""
    return datetime.fromtimestamp(ns // _NS, UTC)
