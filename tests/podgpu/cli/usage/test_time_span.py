"""Times as options give them and as reports show them."""

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.time_zones import first_hour, zone, zone_name
from podgpu.cli.usage.time_span import (
    Moment,
    MomentError,
    beginning,
    day,
    exact,
    local,
    moment,
    month,
    since,
    utc,
)

HOUR = 3600 * 10**9
DAY = 24 * HOUR


def ago(ns: int) -> Moment:
    return Moment(ns, before_now=True)


def ns(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 10**9  # type: ignore[misc, arg-type]


def at(*date: int, local: bool = True) -> Moment:
    return Moment(ns(*date), local=local)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", ago(7 * DAY)),
        ("12h", ago(12 * HOUR)),
        ("1d12h", ago(36 * HOUR)),
        ("1.5h", ago(HOUR * 3 // 2)),
        ("30m", ago(HOUR // 2)),
        ("2w", ago(14 * DAY)),
        ("1w2d", ago(9 * DAY)),
        ("2027-01-31", at(2027, 1, 31)),
        ("2027-01-31T18:00", at(2027, 1, 31, 18)),
        ("2027-01-31T18:00:05Z", at(2027, 1, 31, 18, 0, 5, local=False)),
        ("2027-01-31Z", at(2027, 1, 31, local=False)),
        ("1950-01-01", Moment(0)),
    ],
)
def test_a_duration_or_a_time_is_read(text: str, expected: object) -> None:
    assert moment(text) == beginning(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "w", "7", "-7d", "d7", "2w2", "2027-13-01", "2027-1-1", "27-01-01", "2027-01-31T18",
     "2027-01-31T25:00", "2027-01-31T18:00+01:00", "2027-01-31 18:00", "99999w", "all ", "now",
     "\N{ARABIC-INDIC DIGIT SEVEN}d"],
)  # fmt: skip
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MomentError, match=r"write for example 7d"):
        beginning(text)


def test_all_is_valid_only_as_a_start() -> None:
    assert beginning("all") == Moment(0)
    with pytest.raises(MomentError):
        moment("all")


def test_a_duration_is_subtracted_from_now() -> None:
    assert since(ago(DAY), 10 * DAY) == 9 * DAY
    assert since(ago(DAY), HOUR) == 0
    assert since(Moment(5), DAY) == 5


@pytest.mark.parametrize(
    ("text", "zone_of_report", "expected"),
    [
        ("2026-10-01", "UTC", ns(2026, 10, 1)),
        ("2026-10-01", "Europe/Berlin", ns(2026, 9, 30, 22)),
        ("2026-10-01Z", "Europe/Berlin", ns(2026, 10, 1)),
        ("2026-10-01T12:30", "America/New_York", ns(2026, 10, 1, 16, 30)),
        # Midnight is 18:30 UTC. The hour that begins then is still in the day before.
        ("2026-10-01", "Asia/Kolkata", ns(2026, 9, 30, 19)),
        ("2026-10-01", "Asia/Kathmandu", ns(2026, 9, 30, 19)),
        ("2026-10-01", "America/St_Johns", ns(2026, 10, 1, 3)),
        # Other times stay as they are: an hour of the report may begin before.
        ("2026-10-01T00:10", "Asia/Kolkata", ns(2026, 9, 30, 18, 40)),
        # Clocks show 02:30 twice: the first time. They skip 02:30 in March.
        ("2026-10-25T02:30", "Europe/Berlin", ns(2026, 10, 25, 0, 30)),
        ("2026-03-29T02:30", "Europe/Berlin", ns(2026, 3, 29, 1, 30)),
        ("1970-01-01", "Europe/Berlin", 0),
    ],
)
def test_a_date_is_one_in_the_zone_of_the_report(
    text: str, zone_of_report: str, expected: int
) -> None:
    assert since(moment(text), 0, zone(zone_of_report)) == expected


@pytest.mark.parametrize(
    ("text", "zone_of_report", "start", "hours"),
    [
        ("2026-10", "UTC", ns(2026, 10, 1), 744),
        ("2026-12", "UTC", ns(2026, 12, 1), 744),
        ("2028-02", "UTC", ns(2028, 2, 1), 696),
        # Summer time begins in March and ends in October.
        ("2026-03", "Europe/Berlin", ns(2026, 2, 28, 23), 743),
        ("2026-10", "Europe/Berlin", ns(2026, 9, 30, 22), 745),
        ("2026-10", "Asia/Kolkata", ns(2026, 9, 30, 19), 744),
        # The change is by half an hour: from UTC+10:30 to UTC+11.
        ("2026-10", "Australia/Lord_Howe", ns(2026, 9, 30, 14), 743),
        ("2026-10-25", "Europe/Berlin", ns(2026, 10, 24, 22), 25),
        ("2026-03-29", "Europe/Berlin", ns(2026, 3, 28, 23), 23),
        ("2026-10-25", "UTC", ns(2026, 10, 25), 24),
        # The clocks skipped midnight: the day began at 01:00.
        ("2018-11-04", "America/Sao_Paulo", ns(2018, 11, 4, 3), 23),
        ("2011-12-29", "Pacific/Apia", ns(2011, 12, 29, 10), 24),
    ],
)
def test_a_calendar_period_has_the_hours_that_begin_in_it(
    text: str, zone_of_report: str, start: int, hours: int
) -> None:
    period = month(text) if len(text) == len("2026-10") else day(text)
    assert period.span(zone(zone_of_report)) == (start, start + hours * HOUR)


def test_a_day_that_the_clocks_skipped_is_refused() -> None:
    with pytest.raises(MomentError, match="2011-12-30 does not exist in Pacific/Apia"):
        day("2011-12-30").span(zone("Pacific/Apia"))


ZONES = sorted(zoneinfo.available_timezones())


@given(st.sampled_from(ZONES), st.integers(1970, 2100), st.integers(1, 12))
def test_months_and_their_days_have_each_hour_once(name: str, year: int, number: int) -> None:
    tz = zone(name)
    this = month(f"{year}-{number:02}")
    start, end = this.span(tz)
    following = month(f"{this.after:%Y-%m}")
    assert following.span(tz)[0] == end
    assert start % HOUR == end % HOUR == 0
    edges = [first_hour(this.first + timedelta(days=each), tz)
             for each in range((this.after - this.first).days + 1)]  # fmt: skip
    assert [edges[0], edges[-1]] == [start, end]
    assert edges == sorted(edges)
    # Each hour begins in the month, by the clocks of the zone.
    for each in (start, end - HOUR):
        assert local(each, tz, "%Y-%m") == f"{year}-{number:02}"
    for each in (start - HOUR, end):
        assert each < 0 or local(each, tz, "%Y-%m") != f"{year}-{number:02}"


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (month, "2026-13", "there is no such date; write a month such as 2026-10"),
        (month, "2026-1", "write a month such as 2026-10"),
        (month, "2026-10-01", "write a month such as 2026-10"),
        (month, "1969-12", "the year is not from 1970 to 9998"),
        (month, "9999-12", "the year is not from 1970 to 9998"),
        (day, "2026-02-29", "there is no such date; write a day such as 2026-10-31"),
        (day, "2026-02", "write a day such as 2026-10-31"),
    ],
)  # fmt: skip
def test_an_invalid_period_is_refused(
    parse: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(MomentError, match=re.escape(message)):
        parse(text)


def test_a_time_is_shown_in_the_zone_of_the_report() -> None:
    berlin = zone("Europe/Berlin")
    assert local(ns(2026, 9, 30, 22), berlin) == "2026-10-01 00:00"
    assert zone_name(berlin) == "Europe/Berlin"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_800_000_000 * 10**9, "2027-01-15T08:00:00Z"),
        (1_800_000_000 * 10**9 + 1, "2027-01-15T08:00:00.000000001Z"),
        (1_800_000_000 * 10**9 + 120_000_000, "2027-01-15T08:00:00.12Z"),
    ],
)
def test_a_time_is_shown_with_all_its_digits(ns: int, text: str) -> None:
    assert exact(ns) == text
    assert utc(ns) == text[:16].replace("T", " ")
