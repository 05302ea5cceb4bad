"""A ledger is queried in the background, at most once a minute, and only while a page is viewed."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.component.contracts import UsageHistory
from pipeline.model import TotalsRestored
from pipeline.model.ledger_usage import HourTotal, UsageWindow
from pipeline.status_page.last_day_usage import DAY_NS, QUERY_TIMEOUT, LastDayCache, LastDayUsage
from tests.pipeline.ledger.reports.windows import day
from tests.support.contexts import LoopClock

pytestmark = pytest.mark.looptime


class Ledger:
    """A ledger whose response a test sets, and which records its queries.

    Attributes:
        queried: the queried time spans.
        hours_queried: the time spans for which hourly totals were queried.
        error: raised instead of a response.
        gate: while it is closed, there is no response.
    """

    def __init__(self) -> None:
        self.queried: list[tuple[int, int]] = []
        self.hours_queried: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def stored_usage(self) -> TotalsRestored | None:
        return None

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        self.queried.append((start_ns, end_ns))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return day()

    async def hours(self, start_ns: int, end_ns: int) -> tuple[HourTotal, ...]:
        self.hours_queried.append((start_ns, end_ns))
        return (HourTotal(0, 1, 0, 1, None, None),)


class ViewedPage:
    """A page and the ledgers of its podgpu."""

    def __init__(self, **ledgers: Ledger) -> None:
        self.ledgers: dict[str, UsageHistory] = dict(ledgers)
        self.tasks: list[asyncio.Task[None]] = []
        self.clock = LoopClock()
        self.day = LastDayCache(self.clock, lambda: self.ledgers, self._spawn)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    async def queried_usage(self) -> LastDayUsage | None:
        """Read the usage, wait for the query that this starts, and read it again."""
        self.day.known()
        await asyncio.gather(*self.tasks)
        return self.day.known()


async def test_without_a_ledger_there_is_no_usage_and_no_query() -> None:
    page = ViewedPage()
    assert page.day.known() is None
    assert page.tasks == []


async def test_no_query_is_made_before_a_page_is_viewed() -> None:
    ledger = Ledger()
    ViewedPage(books=ledger)
    await asyncio.sleep(600)
    assert ledger.queried == []


async def test_the_first_view_does_not_wait_for_the_query() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    page = ViewedPage(books=ledger)
    assert page.day.known() == LastDayUsage("books")
    assert ledger.queried == []
    await asyncio.sleep(1)
    now = page.clock.now().wall_ns - 10**9
    assert ledger.queried == [(now - DAY_NS, now)]
    assert page.day.known() == LastDayUsage("books")
    ledger.gate.set()
    found = await page.queried_usage()
    assert found is not None
    assert found.report is not None
    assert found.report.window == day()
    assert [row.key.name for row in found.report.rows if row.key][:2] == [
        "ml/train-0",
        "ml/train-1",
    ]


async def test_hourly_totals_are_those_of_28_days_with_today() -> None:
    ledger = Ledger()
    page = ViewedPage(books=ledger)
    await asyncio.sleep(100)
    found = await page.queried_usage()
    assert found is not None
    assert found.hours == (HourTotal(0, 1, 0, 1, None, None),)
    now = page.clock.now().wall_ns
    assert ledger.hours_queried == [((now // DAY_NS - 27) * DAY_NS, now)]


async def test_the_ledger_is_queried_once_a_minute_with_any_number_of_views() -> None:
    ledger = Ledger()
    page = ViewedPage(books=ledger)
    for _ in range(50):
        await page.queried_usage()
        await asyncio.sleep(2.5)
    assert len(ledger.queried) == 3


async def test_a_ledger_that_does_not_respond_is_queried_once_and_reported() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    page = ViewedPage(books=ledger)
    for _ in range(29):
        assert page.day.known() == LastDayUsage("books")
        await asyncio.sleep(1)
    assert len(ledger.queried) == 1
    await asyncio.sleep(QUERY_TIMEOUT)
    found = page.day.known()
    assert found is not None
    assert found.error == (
        "no response for 30 s: computing the usage of the last day takes too long; check the CPU "
        "load of the node"
    )


async def test_the_last_usage_stays_while_the_ledger_cannot_be_read() -> None:
    ledger = Ledger()
    page = ViewedPage(books=ledger)
    before = await page.queried_usage()
    assert before is not None
    ledger.error = TransientError("/var/lib/x: the disk is gone; see it")
    await asyncio.sleep(61)
    after = await page.queried_usage()
    assert after == replace(before, error="/var/lib/x: the disk is gone; see it")
    assert after.devices is not None
    ledger.error = None
    await asyncio.sleep(61)
    last = await page.queried_usage()
    assert last is not None
    assert last.error == ""
    assert last.read_at is not None
    assert before.read_at is not None
    assert last.read_at.mono_ns - before.read_at.mono_ns >= 120 * 10**9


async def test_an_unexpected_exception_is_raised() -> None:
    ledger = Ledger()
    ledger.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await ViewedPage(books=ledger).queried_usage()


@pytest.mark.parametrize("name", ["new", "old"])
async def test_usage_of_a_replaced_ledger_is_not_shown(name: str) -> None:
    first, second = Ledger(), Ledger()
    first.gate.clear()
    page = ViewedPage(old=first)
    page.day.known()
    await asyncio.sleep(1)
    page.ledgers = {name: second}
    assert page.day.known() == LastDayUsage(name)
    first.gate.set()
    found = await page.queried_usage()
    assert found == LastDayUsage(name), "usage from the old ledger is not from the new one"
    found = await page.queried_usage()
    assert found is not None
    assert found.report is not None
    assert len(second.queried) == 1
    page.ledgers = {}
    assert page.day.known() is None


async def test_usage_of_a_replaced_ledger_of_the_same_name_is_not_shown() -> None:
    """A reload that changes the path creates another ledger with the same name."""
    first, second = Ledger(), Ledger()
    page = ViewedPage(books=first)
    before = await page.queried_usage()
    assert before is not None
    assert before.report is not None
    second.error = TransientError("/var/lib/y: is not there")
    page.ledgers = {"books": second}
    assert page.day.known() == LastDayUsage("books"), "the new ledger is queried immediately"
    assert await page.queried_usage() == LastDayUsage("books", error="/var/lib/y: is not there")
    assert (len(first.queried), len(second.queried)) == (1, 1)


async def test_a_query_is_cancelled_when_podgpu_stops() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    page = ViewedPage(books=ledger)
    page.day.known()
    await asyncio.sleep(1)
    page.day.close()
    await asyncio.wait(page.tasks)
    assert [task.cancelled() for task in page.tasks] == [True]
