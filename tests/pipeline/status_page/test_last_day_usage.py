"""A ledger is asked in the background, while somebody looks, once a minute at most."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.component.contracts import UsageHistory
from pipeline.model import TotalsRestored
from pipeline.model.usage_window import UsageWindow
from pipeline.status_page.last_day_usage import DAY_NS, QUERY_TIMEOUT, LastDayCache, LastDayUsage
from tests.pipeline.ledger.reports.windows import day
from tests.support.contexts import LoopClock

pytestmark = pytest.mark.looptime


class Ledger:
    """Answers as a test says; counts who asks.

    Attributes:
        asked: spans that were asked for.
        error: raised instead of an answer.
        gate: closed, it doesn't answer.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def stored_usage(self) -> TotalsRestored | None:
        return None

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        self.asked.append((start_ns, end_ns))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return day()


class Looking:
    """A page, and the ledgers of its podgpu."""

    def __init__(self, **ledgers: Ledger) -> None:
        self.ledgers: dict[str, UsageHistory] = dict(ledgers)
        self.tasks: list[asyncio.Task[None]] = []
        self.clock = LoopClock()
        self.day = LastDayCache(self.clock, lambda: self.ledgers, self._spawn)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    async def answered(self) -> LastDayUsage | None:
        """Look, wait for what that set off, and look again."""
        self.day.known()
        await asyncio.gather(*self.tasks)
        return self.day.known()


async def test_without_a_ledger_there_is_nothing_and_nothing_is_asked() -> None:
    looking = Looking()
    assert looking.day.known() is None
    assert looking.tasks == []


async def test_nothing_is_asked_before_someone_looks() -> None:
    ledger = Ledger()
    Looking(books=ledger)
    await asyncio.sleep(600)
    assert ledger.asked == []


async def test_the_first_look_does_not_wait() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    looking = Looking(books=ledger)
    assert looking.day.known() == LastDayUsage("books")
    assert ledger.asked == []
    await asyncio.sleep(1)
    now = looking.clock.now().wall_ns - 10**9
    assert ledger.asked == [(now - DAY_NS, now)]
    assert looking.day.known() == LastDayUsage("books")
    ledger.gate.set()
    found = await looking.answered()
    assert found is not None
    assert found.report is not None
    assert found.report.window == day()
    assert [row.key.name for row in found.report.rows if row.key][:2] == [
        "ml/train-0",
        "ml/train-1",
    ]


async def test_once_a_minute_however_many_look() -> None:
    ledger = Ledger()
    looking = Looking(books=ledger)
    for _ in range(50):
        await looking.answered()
        await asyncio.sleep(2.5)
    assert len(ledger.asked) == 3


async def test_one_that_hangs_is_asked_once_and_reported_of() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    looking = Looking(books=ledger)
    for _ in range(29):
        assert looking.day.known() == LastDayUsage("books")
        await asyncio.sleep(1)
    assert len(ledger.asked) == 1
    await asyncio.sleep(QUERY_TIMEOUT)
    found = looking.day.known()
    assert found is not None
    assert found.error == (
        "no response for 30 s: computing the usage of the last day takes too long; check the CPU "
        "load of the node"
    )


async def test_what_it_reported_stands_while_it_can_t_be_read() -> None:
    ledger = Ledger()
    looking = Looking(books=ledger)
    before = await looking.answered()
    assert before is not None
    ledger.error = TransientError("/var/lib/x: the disk is gone; see it")
    await asyncio.sleep(61)
    after = await looking.answered()
    assert after == replace(before, error="/var/lib/x: the disk is gone; see it")
    assert after.devices is not None
    ledger.error = None
    await asyncio.sleep(61)
    last = await looking.answered()
    assert last is not None
    assert last.error == ""
    assert last.read_at is not None
    assert before.read_at is not None
    assert last.read_at.mono_ns - before.read_at.mono_ns >= 120 * 10**9


async def test_a_bug_is_not_hidden() -> None:
    ledger = Ledger()
    ledger.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await Looking(books=ledger).answered()


@pytest.mark.parametrize("name", ["new", "old"])
async def test_another_ledger_in_its_place_reports_for_itself(name: str) -> None:
    first, second = Ledger(), Ledger()
    first.gate.clear()
    looking = Looking(old=first)
    looking.day.known()
    await asyncio.sleep(1)
    looking.ledgers = {name: second}
    assert looking.day.known() == LastDayUsage(name)
    first.gate.set()
    found = await looking.answered()
    assert found == LastDayUsage(name), "what the old one told is not the new one's word"
    found = await looking.answered()
    assert found is not None
    assert found.report is not None
    assert len(second.asked) == 1
    looking.ledgers = {}
    assert looking.day.known() is None


async def test_what_one_reported_is_gone_with_it_whatever_the_next_one_is_called() -> None:
    """A reload that changes the path makes another ledger of the same name."""
    first, second = Ledger(), Ledger()
    looking = Looking(books=first)
    before = await looking.answered()
    assert before is not None
    assert before.report is not None
    second.error = TransientError("/var/lib/y: is not there")
    looking.ledgers = {"books": second}
    assert looking.day.known() == LastDayUsage("books"), "it is asked at once"
    assert await looking.answered() == LastDayUsage("books", error="/var/lib/y: is not there")
    assert (len(first.asked), len(second.asked)) == (1, 1)


async def test_nothing_is_left_when_podgpu_stops() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    looking = Looking(books=ledger)
    looking.day.known()
    await asyncio.sleep(1)
    looking.day.close()
    await asyncio.wait(looking.tasks)
    assert [task.cancelled() for task in looking.tasks] == [True]
