"""The usage of the last 24 hours on the page of a running podgpu."""

import asyncio

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import TotalsRestored
from pipeline.model.ledger_usage import HourTotal, UsageWindow
from tests.pipeline.ledger.reports.windows import day
from tests.pipeline.runtime.runtimes import registered
from tests.pipeline.status_page.html_reader import read, table
from tests.pipeline.status_page.test_running import discovering, running, status_when
from tests.support.components import KeepingSink, Registered

__all__ = ["registered"]


class FakeLedger(KeepingSink):
    """A sink that stores usage.

    Attributes:
        queries: the number of queries.
        error: raised instead of a response.
        responds: while it is closed, there is no response.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queries = 0
        self.error: Exception | None = None
        self.responds = asyncio.Event()
        self.responds.set()

    async def stored_usage(self) -> TotalsRestored | None:
        return None

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        self.queries += 1
        await self.responds.wait()
        if self.error is not None:
            raise self.error
        return day()

    async def hours(self, start_ns: int, end_ns: int) -> tuple[HourTotal, ...]:
        return ()


def with_ledger(registered: Registered) -> FakeLedger:
    ledger = FakeLedger()
    registered.sources = {"gpus": discovering}
    registered.sinks["keep"] = ledger
    return ledger


@pytest.mark.slow
async def test_usage_of_the_ledger_is_shown(registered: Registered) -> None:
    ledger = with_ledger(registered)
    async with running(registered, ["gpus"], ["other", "keep"]) as client:
        assert ledger.queries == 0, "no page has been viewed yet"
        found = await status_when(client, lambda d: d["usage"] and d["usage"]["day"])
        assert (found["usage"]["sink"], found["usage"]["error"]) == ("keep", None)
        assert found["usage"]["day"]["total"]["holdings"] == 8
        assert found["usage"]["age_seconds"] >= 0
        _, page = await client.get("/")
        assert table(read(page), "day")[1][0] == "ml/train-0"
        assert ledger.queries == 1


async def test_a_ledger_that_does_not_respond_delays_no_page(registered: Registered) -> None:
    ledger = with_ledger(registered)
    ledger.responds.clear()
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["gpus"])
        nothing: dict[str, object] = {"hours": [], "days": []}
        nothing |= dict.fromkeys(("age_seconds", "error", "day", "sample_data"))
        assert found["usage"] == {"sink": "keep", **nothing}
        _, page = await client.get("/")
        assert "The ledger keep is being read." in read(page).text
    assert ledger.left == 1, "podgpu stops nevertheless"


@pytest.mark.slow
async def test_an_error_of_the_ledger_is_shown(registered: Registered) -> None:
    ledger = with_ledger(registered)
    ledger.error = TransientError("/var/lib/x.db: the disk is full; make room")
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["usage"] and d["usage"]["error"])
        assert found["usage"]["error"] == "/var/lib/x.db: the disk is full; make room"
        assert found["gpus"], "the rest of the page is unchanged"


async def test_without_a_ledger_no_usage_is_shown(registered: Registered) -> None:
    registered.sources = {"gpus": discovering}
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["gpus"])
        assert found["usage"] is None
        _, page = await client.get("/")
        assert "Last 24 hours" not in page
