"""Hours and days in the document, from hourly totals."""

from dataclasses import replace

from pipeline.ledger.schema import HOUR_NS
from pipeline.model.ledger_usage import HourTotal
from pipeline.status_page.last_day_usage import DAY_NS, LastDayUsage
from pipeline.status_page.periods import days_of, hours_of
from tests.pipeline.ledger.reports.windows import day
from tests.pipeline.status_page.last_days import DAYS, last_day

END_NS = 1000 * DAY_NS + 10 * HOUR_NS + HOUR_NS // 2


def total(hour: int, **other: int | None) -> HourTotal:
    """Return an hour in which one of two devices was held and half of that busy.

    Args:
        hour: number of the hour from the start of the last day.
        other: other values.
    """
    known = HourTotal(
        1000 * DAY_NS + hour * HOUR_NS, 2 * HOUR_NS, 0, HOUR_NS, HOUR_NS // 2, 3_600_000
    )
    return replace(known, **other)  # type: ignore[arg-type]


def usage(*hours: HourTotal) -> LastDayUsage:
    window = replace(day(), end_ns=END_NS)
    return replace(last_day(window), hours=hours)


def test_an_hour_has_its_ratios_and_energy() -> None:
    [found] = hours_of(usage(total(3)))
    assert (found.allocated_ratio, found.used_ratio, found.energy_joules) == (0.5, 0.25, 3600)
    assert (found.until - found.since).total_seconds() == 3600


def test_only_the_last_24_hours_are_shown_as_hours() -> None:
    found = hours_of(usage(*(total(hour) for hour in range(-20, 11))))
    assert len(found) == 25, "the first and the last hour are partly in the span"
    assert found[-1].until.timestamp() == END_NS / 1e9


def test_hours_are_summed_to_days() -> None:
    quiet = total(-1, held_ns=0, busy_ns=0, energy_mj=0)
    found = days_of(usage(total(-2), quiet, total(0)))
    assert [(one.allocated_ratio, one.energy_joules) for one in found] == [
        (0.25, 3600),
        (0.5, 3600),
    ]
    assert found[0].since.hour == 0
    assert (found[0].until - found[0].since).days == 1


def test_what_is_unknown_is_null_and_not_0() -> None:
    unknown = total(0, unknown_ns=2 * HOUR_NS, busy_ns=None, energy_mj=None)
    [found] = days_of(usage(unknown))
    assert (found.allocated_ratio, found.used_ratio, found.energy_joules) == (None,) * 3


def test_time_with_unknown_holders_counts_neither_as_held_nor_as_free() -> None:
    [found] = days_of(usage(total(0, unknown_ns=HOUR_NS)))
    assert (found.allocated_ratio, found.used_ratio) == (1, 0.25)


def test_before_the_first_result_there_are_none() -> None:
    assert hours_of(DAYS["not-read-yet"]) == days_of(DAYS["not-read-yet"]) == ()
