"""Tests of daemon threads: they keep no arguments of calls, and end when they are stopped."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from pipeline.host.daemon_threads import DaemonExecutor, SingleCall

SOON = 10.0


class Argument:
    """An argument that a weak reference can observe."""


def wait_until_collected(reference: "weakref.ref[Argument]") -> None:
    end = threading.Event()
    for _ in range(1000):
        if reference() is None:
            return
        end.wait(0.01)
    raise AssertionError("the argument is still referenced")


def fine(_: Argument) -> None:
    """Return without an error."""


def fails(_: Argument) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("work", [fine, fails])
def test_the_arguments_of_a_call_are_released_when_it_returns(
    work: Callable[[Argument], None],
) -> None:
    threads, argument = DaemonExecutor("test"), Argument()
    reference = weakref.ref(argument)
    gc.disable()
    try:
        future = threads.submit(work, argument)
        del argument
        assert (future.exception(SOON) is None) == (work is fine)
        del future
        wait_until_collected(reference)
    finally:
        gc.enable()
        threads.shutdown()


def test_a_cancelled_call_releases_its_arguments_immediately() -> None:
    threads, go = DaemonExecutor("test"), threading.Event()
    blocking = threads.submit(go.wait, SOON)
    argument = Argument()
    reference = weakref.ref(argument)
    waiting = threads.submit(fine, argument)
    del argument
    assert waiting.cancel()
    assert reference() is None
    go.set()
    assert blocking.result(SOON)
    assert threads.submit(int, "7").result(SOON) == 7, "the next call runs"
    threads.shutdown()


async def test_a_call_whose_awaiter_timed_out_releases_its_arguments() -> None:
    threads, go = DaemonExecutor("test"), threading.Event()
    blocking = threads.submit(go.wait, SOON)
    argument = Argument()
    reference = weakref.ref(argument)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.wrap_future(threads.submit(fine, argument))
    del argument
    assert reference() is None
    go.set()
    assert blocking.result(SOON)
    threads.shutdown()


async def test_a_thread_that_is_stopped_during_a_call_ends_after_it() -> None:
    single, go = SingleCall("stopped-in-call"), threading.Event()
    future = single.start(lambda: go.wait(SOON))
    assert future is not None
    [thread] = [one for one in threading.enumerate() if one.name == "stopped-in-call"]
    single.stop()
    assert single.start(lambda: True) is None, "no second thread starts while the first one hangs"
    go.set()
    assert await future
    thread.join(SOON)
    assert not thread.is_alive()
    again = single.start(lambda: True)
    assert again is not None
    assert await again
    single.stop()
