"""Parses and formats the times of a report: a date, a time before now, a calendar month.

Usage is stored for whole hours of UTC. An hour belongs to the day and the month in which it begins,
in the time zone of the report. So every hour is in exactly one day, also in a zone whose days begin
at half past an hour of UTC.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from config.time_zones import first_hour, instant, zone_name
from config.value_types import Duration, FormatError

_NS: Final = 10**9
_DAY: Final = 86_400 * _NS
_WEEK: Final = 7 * _DAY
_WEEKS: Final = re.compile(r"([0-9]{1,4})w(.*)", re.DOTALL)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?Z?")
_MONTH: Final = re.compile(r"([0-9]{4})-([0-9]{2})")
_ONE_DAY: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 9998
_HINT: Final = "write for example 7d, 12h, 2w, 2027-01-31 or 2027-01-31T18:00 (in --tz, or UTC)"

BEGINNING: Final = "all"
"""The text that means the time of the first entry."""


class MomentError(ValueError):
    """A text is not a valid time; the text of the error says what to write instead."""


class Moment(NamedTuple):
    """A point in time: a date, or a time before now.

    Attributes:
        ns: nanoseconds of Unix time; or, if `before_now`, nanoseconds before now.
        before_now: whether `ns` counts from now into the past.
        local: whether the date is one in the time zone of the report: `ns` is then the time that
            its clocks show, as if they showed UTC.
    """

    ns: int
    before_now: bool = False
    local: bool = False


class Period(NamedTuple):
    """A calendar month, or a calendar day.

    Attributes:
        first: the first day.
        after: the day after the last one.
    """

    first: date
    after: date

    def span(self, tz: tzinfo = UTC) -> tuple[int, int]:
        """Return start and end of the hours that begin in the period, in ns of Unix time.

        Args:
            tz: the time zone of the period.

        Raises:
            MomentError: the zone has no such day, because its clocks skipped it.
        """
        start, end = first_hour(self.first, tz), first_hour(self.after, tz)
        if start >= end:
            raise MomentError(f"{self.first} does not exist in {zone_name(tz)}; give another day")
        return start, end


def moment(text: str) -> Moment:
    """Parse `7d`, `12h`, `2w`, `1w2d`, `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM`; with `Z` it is UTC.

    Raises:
        MomentError: the text has another format.
    """
    return _date(text) if _DATE.fullmatch(text) else _ago(text)


def beginning(text: str) -> Moment:
    """Parse a text in a format of `moment`, or `all`.

    Raises:
        MomentError: the text has another format.
    """
    return Moment(0) if text == BEGINNING else moment(text)


def month(text: str) -> Period:
    """Parse a calendar month, `YYYY-MM`.

    Raises:
        MomentError: the text has another format, or there is no such month.
    """
    hint = "write a month such as 2026-10"
    if not (match := _MONTH.fullmatch(text)):
        raise MomentError(hint)
    first = _day(int(match[1]), int(match[2]), 1, hint)
    return Period(first, (first + timedelta(days=31)).replace(day=1))


def day(text: str) -> Period:
    """Parse a calendar day, `YYYY-MM-DD`.

    Raises:
        MomentError: the text has another format, or there is no such day.
    """
    hint = "write a day such as 2026-10-31"
    if not (match := _ONE_DAY.fullmatch(text)):
        raise MomentError(hint)
    first = _day(int(match[1]), int(match[2]), int(match[3]), hint)
    return Period(first, first + timedelta(days=1))


def since(found: Moment, now_ns: int, tz: tzinfo = UTC) -> int:
    """Return a point in time as nanoseconds of Unix time, at least 0.

    Args:
        found: the point in time.
        now_ns: the time now, in nanoseconds of Unix time.
        tz: the time zone of the report. Its midnight counts as the start of the first hour of UTC
            that begins on this day.
    """
    if found.before_now:
        return max(now_ns - found.ns, 0)
    if not found.local:
        return found.ns
    clocks = datetime.fromtimestamp(found.ns // _NS, UTC).replace(tzinfo=None)
    if found.ns % _DAY == 0:
        return max(first_hour(clocks.date(), tz), 0)
    return max(instant(clocks, tz) * _NS, 0)


def utc(ns: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time as text in UTC, without the name of the time zone."""
    return local(ns, UTC, form)


def local(ns: int, tz: tzinfo, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time as text in a time zone, without the name of the zone."""
    return datetime.fromtimestamp(ns // _NS, tz).strftime(form)


def exact(ns: int) -> str:
    """Return a time as text as in RFC 3339, in UTC, with as many decimal places as needed."""
    whole, rest = divmod(ns, _NS)
    digits = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}{digits}Z"


def _day(year: int, month_of_year: int, day_of_month: int, hint: str) -> date:
    try:
        found = date(year, month_of_year, day_of_month)
    except ValueError as error:
        raise MomentError(f"there is no such date; {hint}") from error
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        raise MomentError(f"the year is not from {_FIRST_YEAR} to {_LAST_YEAR}; {hint}")
    return found


def _date(text: str) -> Moment:
    try:
        found = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError as error:
        raise MomentError(f"there is no such date; {_HINT}") from error
    if found.year < _FIRST_YEAR:
        return Moment(0)
    return Moment(int(found.timestamp()) * _NS, local=not text.endswith("Z"))


def _ago(text: str) -> Moment:
    weeks, rest = 0, text
    if match := _WEEKS.fullmatch(text):
        weeks, rest = int(match[1]), match[2]
    try:
        # An error of `Duration` is not shown, because it would repeat a part of the hint.
        more = Duration.parse(rest).ns if rest or not weeks else 0
    except FormatError as error:
        raise MomentError(_HINT) from error
    return Moment(weeks * _WEEK + more, before_now=True)
