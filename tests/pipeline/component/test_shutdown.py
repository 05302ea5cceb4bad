"""Work that is in progress when a sink has to stop."""

import asyncio

import pytest

from pipeline.component.shutdown import STOP_SECONDS, run_until_stopped

LONG = 2 * STOP_SECONDS


async def working(seconds: float, log: list[str]) -> None:
    try:
        await asyncio.sleep(seconds)
        log.append("done")
    except asyncio.CancelledError:
        log.append("cancelled")
        raise


def closing(after: float | None) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    closed: asyncio.Future[None] = loop.create_future()
    if after is not None:
        loop.call_later(after, closed.set_result, None)
    return closed


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("seconds", "closes", "takes", "log"),
    [
        pytest.param(
            100 * STOP_SECONDS, None, 100 * STOP_SECONDS, "done", id="the sink does not stop"
        ),
        pytest.param(STOP_SECONDS, 1, STOP_SECONDS, "done", id="the work ends within the time"),
        pytest.param(LONG, 1, 1 + STOP_SECONDS, "cancelled", id="the work takes too long"),
        pytest.param(1, 0, 1, "done", id="the sink has stopped before"),
    ],
)
async def test_work_gets_a_limited_time_after_the_stop(
    seconds: float, closes: float | None, takes: float, log: str
) -> None:
    events: list[str] = []
    loop = asyncio.get_running_loop()
    start = loop.time()
    work = await run_until_stopped(working(seconds, events), closing(closes))
    assert loop.time() - start == pytest.approx(takes)
    assert events == [log]
    cancelled = work.cancelled()
    assert cancelled is (log == "cancelled")


@pytest.mark.looptime
async def test_cancelling_the_caller_cancels_the_work() -> None:
    events: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await (await run_until_stopped(working(LONG, events), closing(None)))
    assert events == ["cancelled"]


@pytest.mark.looptime
async def test_an_exception_of_the_work_is_in_the_returned_task() -> None:
    async def fails() -> None:
        raise ValueError("so")

    work = await run_until_stopped(fails(), closing(None))
    with pytest.raises(ValueError, match="so"):
        await work
