"""Work under way when a sink has to stop."""

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
        pytest.param(100 * STOP_SECONDS, None, 100 * STOP_SECONDS, "done", id="nobody stops it"),
        pytest.param(STOP_SECONDS, 1, STOP_SECONDS, "done", id="it ends within the time"),
        pytest.param(LONG, 1, 1 + STOP_SECONDS, "cancelled", id="it is late"),
        pytest.param(1, 0, 1, "done", id="short, though it has to stop"),
    ],
)
async def test_it_has_a_little_time(
    seconds: float, closes: float | None, takes: float, log: str
) -> None:
    said: list[str] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    work = await run_until_stopped(working(seconds, said), closing(closes))
    assert loop.time() - began == pytest.approx(takes)
    assert said == [log]
    cancelled = work.cancelled()
    assert cancelled is (log == "cancelled")


@pytest.mark.looptime
async def test_who_is_cancelled_cancels_it() -> None:
    said: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await (await run_until_stopped(working(LONG, said), closing(None)))
    assert said == ["cancelled"]


@pytest.mark.looptime
async def test_what_it_raises_is_in_what_is_returned() -> None:
    async def fails() -> None:
        raise ValueError("so")

    work = await run_until_stopped(fails(), closing(None))
    with pytest.raises(ValueError, match="so"):
        await work
