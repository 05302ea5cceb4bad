"""The last 24 hours on the page of a whole podgpu."""

import asyncio

from pipeline.base.errors import TransientError
from pipeline.model import TotalsRestored
from pipeline.model.usage_window import UsageWindow
from tests.pipeline.ledger.reports.windows import day
from tests.pipeline.runtime.runtimes import registered
from tests.pipeline.status_page.reading import read, table
from tests.pipeline.status_page.test_running import discovering, given_out, running
from tests.support.components import KeepingSink, Registered

__all__ = ["registered"]


class LedgerOfATest(KeepingSink):
    """A sink that keeps accounts.

    Attributes:
        asked: how often it was.
        error: raised instead of an answer.
        answers: closed, it gives none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def stored_usage(self) -> TotalsRestored | None:
        return None

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        self.asked += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return day()


def with_ledger(registered: Registered) -> LedgerOfATest:
    ledger = LedgerOfATest()
    registered.sources = {"gpus": discovering}
    registered.sinks["keep"] = ledger
    return ledger


async def test_what_the_ledger_reports_is_shown(registered: Registered) -> None:
    ledger = with_ledger(registered)
    async with running(registered, ["gpus"], ["other", "keep"]) as client:
        assert ledger.asked == 0, "nobody has looked yet"
        found = await given_out(client, lambda d: d["usage"] and d["usage"]["day"])
        assert (found["usage"]["sink"], found["usage"]["error"]) == ("keep", None)
        assert found["usage"]["day"]["total"]["holdings"] == 8
        assert found["usage"]["age_seconds"] >= 0
        _, page = await client.get("/")
        assert table(read(page), "day")[1][0] == "ml/train-0"
        assert ledger.asked == 1


async def test_one_that_does_not_answer_keeps_no_one_waiting(registered: Registered) -> None:
    ledger = with_ledger(registered)
    ledger.answers.clear()
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await given_out(client, lambda d: d["gpus"])
        assert found["usage"] == {"sink": "keep", "age_seconds": None, "error": None, "day": None}
        _, page = await client.get("/")
        assert "The ledger keep is being read." in read(page).text
    assert ledger.left == 1, "nor does it keep podgpu from stopping"


async def test_why_it_can_t_be_read_is_reported(registered: Registered) -> None:
    ledger = with_ledger(registered)
    ledger.error = TransientError("/var/lib/x.db: the disk is full; make room")
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await given_out(client, lambda d: d["usage"] and d["usage"]["error"])
        assert found["usage"]["error"] == "/var/lib/x.db: the disk is full; make room"
        assert found["gpus"], "the rest is as ever"


async def test_without_a_ledger_there_is_none(registered: Registered) -> None:
    registered.sources = {"gpus": discovering}
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await given_out(client, lambda d: d["gpus"])
        assert found["usage"] is None
        _, page = await client.get("/")
        assert "Last 24 hours" not in page
