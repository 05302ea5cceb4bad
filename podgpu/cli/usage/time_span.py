"""Parses and formats the times of a report: a date, or a time before now."""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from config.value_types import Duration, FormatError

_NS: Final = 10**9
_WEEK: Final = 7 * 86_400
_WEEKS: Final = re.compile(r"([0-9]{1,4})w(.*)", re.DOTALL)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?Z?")
_HINT: Final = "write for example 7d, 12h, 2w, 2027-01-31 or 2027-01-31T18:00 (UTC)"

BEGINNING: Final = "all"
"""The text that means the time of the first entry."""


class MomentError(ValueError):
    """A text is not a valid time; the text of the error has examples."""


class Moment(NamedTuple):
    """A point in time: a date, or a time before now.

    Attributes:
        ns: nanoseconds of Unix time; or, if `before_now`, nanoseconds before now.
        before_now: whether `ns` counts from now into the past.
    """

    ns: int
    before_now: bool = False


def moment(text: str) -> Moment:
    """Parse `7d`, `12h`, `2w`, `1w2d`, `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM` (UTC).

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


def since(found: Moment, now_ns: int) -> int:
    """Return a point in time as nanoseconds of Unix time, at least 0."""
    return max(now_ns - found.ns, 0) if found.before_now else found.ns


def utc(ns: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time as text in UTC, without the name of the time zone."""
    return datetime.fromtimestamp(ns // _NS, UTC).strftime(form)


def exact(ns: int) -> str:
    """Return a time as text as in RFC 3339, in UTC, with as many decimal places as needed."""
    whole, rest = divmod(ns, _NS)
    digits = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}{digits}Z"


def _date(text: str) -> Moment:
    try:
        found = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError as error:
        raise MomentError(f"there is no such date; {_HINT}") from error
    return Moment(max(int(found.timestamp()), 0) * _NS)


def _ago(text: str) -> Moment:
    weeks, rest = 0, text
    if match := _WEEKS.fullmatch(text):
        weeks, rest = int(match[1]), match[2]
    try:
        # An error of `Duration` is not shown, because it would repeat a part of the hint.
        more = Duration.parse(rest).ns if rest or not weeks else 0
    except FormatError as error:
        raise MomentError(_HINT) from error
    return Moment(weeks * _WEEK * _NS + more, before_now=True)
