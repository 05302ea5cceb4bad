"""Snapshots that arrive at a sink with other work in between; on virtual time."""

import asyncio
from typing import Final

import pytest

from pipeline.base.channels import Channel
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.model import Snapshot
from tests.support.nodes import Node

pytestmark = pytest.mark.looptime


def snapshots(count: int) -> list[Snapshot]:
    node = Node()
    made = []
    for second in range(count):
        node.seconds = second
        made.append(node.snapshot())
    return made


FIRST, SECOND, THIRD = snapshots(3)
END: Final = None


def now() -> float:
    return asyncio.get_running_loop().time()


def later(seconds: float, inbox: Channel[Snapshot], *arriving: Snapshot | None) -> None:
    """After some seconds, put snapshots into the inbox, or close it."""

    def act() -> None:
        for snapshot in arriving:
            if snapshot is END:
                inbox.close()
            else:
                inbox.offer(snapshot)

    asyncio.get_running_loop().call_later(seconds, act)


@pytest.mark.parametrize(
    ("seconds", "arriving", "takes", "latest", "closed"),
    [
        pytest.param(2, [], 2, None, False, id="no snapshot"),
        pytest.param(0, [], 0, None, False, id="no time"),
        pytest.param(2, [FIRST], 1, FIRST, False, id="a snapshot in time"),
        pytest.param(0.5, [FIRST], 0.5, None, False, id="a snapshot too late"),
        pytest.param(None, [FIRST], 1, FIRST, False, id="no time limit"),
        pytest.param(None, [END], 1, None, True, id="the inbox closes"),
        # A snapshot that was in the inbox when it closed is still taken.
        pytest.param(None, [FIRST, END], 1, FIRST, True, id="a snapshot, then the inbox closes"),
        pytest.param(None, [FIRST, SECOND], 1, FIRST, False, id="one snapshot at a time"),
    ],
)
async def test_wait_returns_at_a_snapshot_at_the_end_or_at_the_time_limit(
    seconds: float | None,
    arriving: list[Snapshot | None],
    takes: float,
    latest: Snapshot | None,
    closed: bool,
) -> None:
    inbox: Channel[Snapshot] = Channel(2)
    later(1, inbox, *arriving)
    async with Arrivals(inbox, None) as arrivals:
        assert await arrivals.wait(seconds) is (latest is not None)
        assert now() == pytest.approx(takes)
        assert arrivals.latest is latest
        assert arrivals.ended is (closed and latest is None)
        await asyncio.sleep(0)
        assert arrivals.closing.done() is closed


async def test_snapshots_arrive_in_order_and_the_last_one_stays_available() -> None:
    inbox: Channel[Snapshot] = Channel(3)
    for snapshot in (FIRST, SECOND, THIRD):
        inbox.offer(snapshot)
    inbox.close()
    seen = []
    async with Arrivals(inbox, None) as arrivals:
        while not arrivals.ended:
            if await arrivals.wait(None):
                seen.append(arrivals.latest)
        assert seen == [FIRST, SECOND, THIRD]
        assert arrivals.latest is THIRD
        # Another call returns immediately.
        assert await arrivals.wait(None) is False
        assert now() == 0


async def test_a_snapshot_that_arrived_during_other_work_is_returned_immediately() -> None:
    inbox: Channel[Snapshot] = Channel(1)
    async with Arrivals(inbox, FIRST) as arrivals:
        assert arrivals.latest is FIRST
        later(1, inbox, SECOND)
        await asyncio.sleep(5)
        # Until the next `wait()` the previous snapshot stays the latest.
        assert arrivals.latest is FIRST
        assert await arrivals.wait(100) is True
        assert (arrivals.latest, now()) == (SECOND, 5)


@pytest.mark.parametrize("waits", [True, False])
async def test_an_inbox_that_is_already_closed(waits: bool) -> None:
    inbox: Channel[Snapshot] = Channel(1)
    if waits:
        inbox.offer(SECOND)
    inbox.close()
    async with Arrivals(inbox, FIRST) as arrivals:
        assert arrivals.closing.done()
        assert not arrivals.ended
        assert await arrivals.wait(None) is waits
        assert arrivals.latest is (SECOND if waits else FIRST)


@pytest.mark.parametrize("how", ["leaves", "fails", "is cancelled", "is cancelled immediately"])
async def test_no_task_continues_after_the_block_is_left(how: str) -> None:
    before = asyncio.all_tasks()

    async def sink() -> None:
        async with Arrivals(Channel[Snapshot](1), None) as arrivals:
            await arrivals.wait(1)
            if how == "fails":
                raise OSError(how)
            if how == "is cancelled":
                await arrivals.wait(None)

    task = asyncio.create_task(sink())
    # The first step enters the block and begins to wait.
    await (asyncio.sleep(0) if how == "is cancelled immediately" else asyncio.sleep(2))
    task.cancel()
    await asyncio.wait([task])
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_cancelled_wait_loses_no_snapshot() -> None:
    """For example by a timeout: the next `wait()` returns a snapshot that arrives later."""
    inbox: Channel[Snapshot] = Channel(1)
    async with Arrivals(inbox, None) as arrivals:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await arrivals.wait(None)
        inbox.offer(FIRST)
        assert await arrivals.wait(None) is True
        assert arrivals.latest is FIRST
