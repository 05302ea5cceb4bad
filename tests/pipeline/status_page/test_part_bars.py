"""Bars that show which part of a time devices were busy, idle, free or unknown."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.schema import HOUR_NS
from pipeline.model.ledger_usage import HourTotal
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.part_bars import (
    Parts,
    bar_graph,
    legend,
    part_bar,
    parts_of_device,
    total,
)
from pipeline.status_page.last_day_usage import DAY_NS
from pipeline.status_page.usage_format import AmountsStatus, PeriodStatus
from tests.pipeline.ledger.reports.windows import day
from tests.pipeline.status_page.html_reader import Element, page, read, table
from tests.pipeline.status_page.last_days import last_day
from tests.pipeline.status_page.scenes import two_gpus
from tests.support.examples import examples

SOME = datetime(2027, 1, 15, tzinfo=UTC)
HOUR = 3600.0


def period(
    days: int, busy: float = 25, idle: float = 25, free: float = 40, unknown: float = 10
) -> PeriodStatus:
    since = SOME + timedelta(days=days)
    return PeriodStatus(
        since=since,
        until=since + timedelta(days=1),
        allocated_ratio=None,
        used_ratio=None,
        busy_seconds=busy,
        idle_seconds=idle,
        free_seconds=free,
        unknown_seconds=unknown,
        energy_joules=None,
    )


def bars(*periods: PeriodStatus, count: int = 28) -> Element:
    return read(bar_graph(periods, timedelta(days=1), count, "by day"))


def test_bars_are_at_the_place_of_their_day() -> None:
    graph = bars(period(-5), period(-1), period(0))
    groups = graph.all("g")
    places = [int(group.all("rect")[0].attributes["x"] or "") // 10 for group in groups]
    assert places == [22, 26, 27]
    assert groups[0].one("title").text == (
        "2027-01-10: busy 25 %, idle 25 %, unknown 10 %, free 40 %"
    )
    assert graph.one("div").text.split() == ["2026-12-19", "2027-01-15"]


def test_days_before_the_first_bar_are_left_out() -> None:
    assert len(bars(*(period(day) for day in range(40)), count=28).all("g")) == 28


def test_the_parts_of_a_bar_are_stacked_with_busy_at_the_bottom() -> None:
    rects = bars(period(0)).one("g").all("rect")
    assert [
        (each.attributes["class"], each.attributes["y"], each.attributes["height"])
        for each in rects
    ] == [
        ("busy", "30.0", "10.0"),
        ("idle", "20.0", "10.0"),
        ("unknown", "16.0", "4.0"),
        ("free", "0.0", "16.0"),
    ]


def test_a_bar_is_as_high_as_its_time_with_usage_data() -> None:
    whole, half, none = bars(period(0), period(1, 0, 50, 0, 0), period(2, 0, 0, 0, 0)).all("g")
    assert sum(float(each.attributes["height"] or "") for each in whole.all("rect")) == 40
    assert [each.attributes["height"] for each in half.all("rect")] == ["20.0"]
    assert none.all("rect") == []
    assert none.one("title").text == "2027-01-17: no usage data"


def test_the_legend_names_each_part_in_words() -> None:
    found = read(legend(Parts(2 * HOUR, HOUR, 0, HOUR)))
    assert [each.text.replace("\N{NO-BREAK SPACE}", " ") for each in found.all("li")] == [
        "busy 2.0 h (50 %)",
        "idle 1.0 h (25 %)",
        "unknown 0.0 h (0 %)",
        "free 1.0 h (25 %)",
    ]


def test_a_part_that_is_not_0_is_not_shown_as_0() -> None:
    items = read(legend(Parts(0, 0, HOUR, 999 * HOUR))).all("li")
    assert items[2].text.replace("\N{NO-BREAK SPACE}", " ") == "unknown 1.0 h (<1 %)"


def amounts(
    held: float, busy: float | None, idle: float | None, free: float, unknown: float
) -> AmountsStatus:
    return AmountsStatus(
        held_seconds=held,
        free_seconds=free,
        unknown_seconds=unknown,
        allocated_ratio=None,
        used_ratio=None,
        busy_seconds=busy,
        busy_error_seconds=0,
        idle_seconds=idle,
        energy_joules=None,
        holdings=0,
        incomplete=False,
    )


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        (amounts(10, 6, 4, 5, 1), Parts(6, 4, 1, 5)),
        # The busy time is unknown, so it is unknown which part of the held time was idle.
        (amounts(10, None, None, 5, 1), Parts(0, 0, 11, 5)),
        (amounts(10, 3, 2, 5, 1), Parts(3, 2, 6, 5)),
        # A process on a device that no container held: it was busy, and not free.
        (amounts(0, 2, -2, 10, 0), Parts(2, 0, 0, 8)),
        (amounts(0, 0, 0, 0, 0), Parts(0, 0, 0, 0)),
    ],
)
def test_the_parts_of_a_device(found: AmountsStatus, parts: Parts) -> None:
    assert parts_of_device(found) == parts


FIGURES = st.floats(-1e18, 1e18)


@settings(deadline=None, max_examples=examples(100))
@given(st.builds(amounts, FIGURES, st.none() | FIGURES, st.none() | FIGURES, FIGURES, FIGURES))
def test_parts_are_never_negative_and_their_bar_can_be_drawn(found: AmountsStatus) -> None:
    parts = parts_of_device(found)
    assert min(parts) >= 0
    for rect in read(part_bar(parts)).all("rect"):
        assert 0 <= float(rect.attributes["width"] or "") <= 100


def test_the_total_of_parts() -> None:
    assert total([Parts(1, 2, 3, 4), Parts(10, 20, 30, 40)]) == Parts(11, 22, 33, 44)
    assert total([]) == Parts(0, 0, 0, 0)


def with_hours(count: int) -> Element:
    now = two_gpus().now
    hours = tuple(
        HourTotal((now.wall_ns // HOUR_NS - n) * HOUR_NS, HOUR_NS, 0, HOUR_NS // 2, 0, 3_600_000)
        for n in reversed(range(count))
    )
    usage = replace(last_day(replace(day(), end_ns=now.wall_ns)), hours=hours)
    return read(page(status_of(replace(two_gpus(), last_day=usage)), ()))


def test_a_ledger_shows_a_day_and_four_weeks() -> None:
    found = with_hours(10 * 24)
    by_hour, by_day = found.all("svg", class_="bars")
    assert (len(by_hour.all("g")), len(by_day.all("g"))) == (25, 10 + 1)
    assert "Last 28 days" in found.text
    # The last day has only begun.
    hours = two_gpus().now.wall_ns % DAY_NS // HOUR_NS + 1 + 6 * 24
    assert table(found, "weeks") == [
        ["Seven days", "Held", "Busy", "Idle", "Free", "Unknown", "Energy"],
        [
            "2027-01-09 to 01-15",
            f"{hours / 2:.1f} h",
            "0.0 h",
            f"{hours / 2:.1f} h",
            f"{hours / 2:.1f} h",
            "0.0 h",
            f"{hours / 1000:.{4 if hours < 100 else 3}f} kWh",
        ],
        [
            "2027-01-02 to 01-08",
            f"{120 - hours / 2:.1f} h",
            "0.0 h",
            f"{120 - hours / 2:.1f} h",
            f"{120 - hours / 2:.1f} h",
            "0.0 h",
            f"{(240 - hours) / 1000:.{4 if hours > 140 else 3}f} kWh",
        ],
    ]


def test_a_new_ledger_shows_no_weeks() -> None:
    hours = two_gpus().now.wall_ns % DAY_NS // HOUR_NS
    assert len(with_hours(hours).all("svg", class_="bars")) == 1
    assert "Last 28 days" not in with_hours(hours).text
