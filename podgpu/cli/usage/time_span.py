"""Spans of time as people write them: so long ago, or a date."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from config.value_types import Duration, FormatError

_NS: Final = 10**9
_WEEK: Final = 7 * 86_400
_WEEKS: Final = re.compile(r"([0-9]{1,4})w(.*)", re.DOTALL)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?Z?")
_HINT: Final = "write for example 7d, 12h, 2w, 2027-01-31 or 2027-01-31T18:00 (UTC)"

BEGINNING: Final = "all"
"""The word for as long ago as anything is known."""


class MomentError(ValueError):
    """A text is no moment; its own text says what one is."""


@dataclass(frozen=True, slots=True)
class Ago:
    """So long before now."""

    ns: int


@dataclass(frozen=True, slots=True)
class At:
    """A moment, in nanoseconds of Unix time."""

    ns: int


Moment: TypeAlias = Ago | At


def moment(text: str) -> Moment:
    """Read `7d`, `12h`, `2w`, `1w2d`, `YYYY-MM-DD`, `YYYY-MM-DDTHH:MM` (UTC).

    Raises:
        MomentError: it is none of them.
    """
    return _date(text) if _DATE.fullmatch(text) else _ago(text)


def beginning(text: str) -> Moment:
    """Read what `moment` reads, or `all`.

    Raises:
        MomentError: it is none of them.
    """
    return At(0) if text == BEGINNING else moment(text)


def since(found: Moment, now_ns: int) -> int:
    """Return a moment in nanoseconds of Unix time, 0 at least."""
    return found.ns if isinstance(found, At) else max(now_ns - found.ns, 0)


def utc(ns: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a moment for people, without its zone."""
    return datetime.fromtimestamp(ns // _NS, UTC).strftime(form)


def exact(ns: int) -> str:
    """Return a moment as RFC 3339 has it, with as many digits as it needs."""
    whole, rest = divmod(ns, _NS)
    digits = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}{digits}Z"


def _date(text: str) -> At:
    try:
        found = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError as error:
        raise MomentError(f"no calendar has that date; {_HINT}") from error
    return At(max(int(found.timestamp()), 0) * _NS)


def _ago(text: str) -> Ago:
    weeks, rest = 0, text
    if match := _WEEKS.fullmatch(text):
        weeks, rest = int(match[1]), match[2]
    try:
        # Of which the zone is another's, or the unit, isn't said twice.
        more = Duration.parse(rest).ns if rest or not weeks else 0
    except FormatError as error:
        raise MomentError(_HINT) from error
    return Ago(weeks * _WEEK * _NS + more)
