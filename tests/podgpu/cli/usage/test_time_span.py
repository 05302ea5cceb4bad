"""Times as options give them and as reports show them."""

from datetime import UTC, datetime

import pytest

from podgpu.cli.usage.time_span import Moment, MomentError, beginning, exact, moment, since, utc

HOUR = 3600 * 10**9
DAY = 24 * HOUR


def ago(ns: int) -> Moment:
    return Moment(ns, before_now=True)


def at(*date: int) -> Moment:
    return Moment(int(datetime(*date, tzinfo=UTC).timestamp()) * 10**9)  # type: ignore[misc, arg-type]


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
        ("2027-01-31T18:00:05Z", at(2027, 1, 31, 18, 0, 5)),
        ("2027-01-31Z", at(2027, 1, 31)),
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
