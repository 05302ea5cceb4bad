"""Time zones by name, and the hours of UTC that belong to a day of a zone."""

import zoneinfo
from contextlib import suppress
from datetime import UTC, date, datetime, tzinfo
from typing import Final

from config.message_text import did_you_mean
from config.value_types import FormatError

_HOUR: Final = 3_600
_NS: Final = 10**9


def zone(text: str) -> tzinfo:
    """Return the time zone with a name of the time zone database, such as `Europe/Berlin`.

    Raises:
        FormatError: there is no zone with this name, or this system has no time zone database.
    """
    if text == "UTC":  # needs no database
        return UTC
    # OSError: the name is too long, or that of a folder, such as Europe.
    with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo(text)
    known = zoneinfo.available_timezones()
    if not known:
        raise FormatError(
            text,
            "is unknown, because this system has no time zone database",
            "install the system's package tzdata or the Python package tzdata, or write UTC",
        )
    hint = did_you_mean(text, known, "write a name such as Europe/Berlin, or UTC")
    raise FormatError(text, "is not a time zone", hint)


def zone_name(tz: tzinfo) -> str:
    """Return the name of a time zone, as `zone` accepts it."""
    return "UTC" if tz is UTC else str(tz)


def first_hour(of: date, tz: tzinfo) -> int:
    """Return the start of the first hour of UTC that begins on a day, in ns of Unix time.

    In most zones this is midnight. In a zone whose midnight is at half past an hour of UTC, it is
    half an hour later. So each hour of UTC belongs to exactly one day.
    """
    return -(-instant(datetime(of.year, of.month, of.day), tz) // _HOUR) * _HOUR * _NS  # noqa: DTZ001


def instant(clocks: datetime, tz: tzinfo) -> int:
    """Return when the clocks of a zone show a time, in seconds of Unix time.

    If they show it twice, it is the first time. A time that they skip counts with the offset before
    the change, so a skipped midnight is the time of the change.
    """
    return int(clocks.replace(tzinfo=tz).timestamp())
