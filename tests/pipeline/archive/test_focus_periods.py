"""The charge periods of a FOCUS export."""

import itertools
import zoneinfo

from hypothesis import given
from hypothesis import strategies as st

from config.time_zones import zone
from pipeline.archive.focus_periods import ChargePeriod, charge_periods, days_around, timestamp
from tests.pipeline.archive.focus_world import HOUR, hour


def texts(periods: list[ChargePeriod]) -> list[str]:
    return [f"{timestamp(one.start):%d %H:%M} - {timestamp(one.end):%d %H:%M}" for one in periods]


def test_a_period_is_a_day_in_the_time_zone() -> None:
    tz = zone("Europe/Berlin")
    found = list(
        charge_periods(
            hour(2026, 10, 23, 22) * HOUR, hour(2026, 10, 27, 1) * HOUR, (), tz, hourly=False
        )
    )
    assert texts(found) == [
        "23 22:00 - 24 22:00",
        "24 22:00 - 25 23:00",  # 25 hours: the end of summer time
        "25 23:00 - 26 23:00",
        "26 23:00 - 27 01:00",  # cut at the end of the span
    ]
    month = hour(2026, 9, 30, 22) * HOUR, hour(2026, 10, 31, 23) * HOUR
    assert {(one.billing_start, one.billing_end) for one in found} == {month}


def test_a_day_is_cut_where_a_price_changes() -> None:
    change = hour(2026, 10, 2, 9) * HOUR
    start, end = hour(2026, 10, 1) * HOUR, hour(2026, 10, 3) * HOUR
    found = list(charge_periods(start, end, (change,), zone("UTC"), hourly=False))
    assert texts(found) == ["01 00:00 - 02 00:00", "02 00:00 - 02 09:00", "02 09:00 - 03 00:00"]
    assert [one.price_start for one in found] == [start, start, change]


@given(
    st.sampled_from(sorted(zoneinfo.available_timezones())),
    st.integers(hour(1990, 1, 1), hour(2040, 1, 1)),
    st.integers(1, 24 * 40),
    st.lists(st.integers(-100, 24 * 40), max_size=4),
    st.booleans(),
)
def test_periods_cover_the_span_once(
    name: str, first: int, length: int, after: list[int], hourly: bool
) -> None:
    tz = zone(name)
    start, end = first * HOUR, (first + length) * HOUR
    changes = sorted({start + each * HOUR for each in after})
    found = list(charge_periods(start, end, changes, tz, hourly=hourly))
    assert [found[0].start, found[-1].end] == [start, end]
    assert all(one.end == two.start for one, two in itertools.pairwise(found))
    for one in found:
        assert one.start < one.end
        assert one.start % HOUR == one.end % HOUR == 0
        assert one.end - one.start == HOUR if hourly else one.end - one.start <= 25 * HOUR
        assert one.billing_start <= one.start < one.end <= one.billing_end
        assert not [each for each in changes if one.start < each < one.end]
        assert one.price_start == max([start, *(each for each in changes if each <= one.start)])
        # All of its hours begin on one day.
        days = {days_around(at, at, tz) for at in (one.start, one.end - HOUR)}
        assert len(days) == 1
