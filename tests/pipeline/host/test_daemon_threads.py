"""Threads for calls that block: what they keep of a call, and for how long."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from pipeline.host.daemon_threads import DaemonExecutor

SOON = 10.0


class Given:
    """An argument whose end can be seen."""


def wait_gone(seen: "weakref.ref[Given]") -> None:
    end = threading.Event()
    for _ in range(1000):
        if seen() is None:
            return
        end.wait(0.01)
    raise AssertionError("somebody still has it")


def fine(_: Given) -> None:
    """Take it."""


def fails(_: Given) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("work", [fine, fails])
def test_what_a_call_was_given_is_release_once_it_was_made(work: Callable[[Given], None]) -> None:
    threads, given = DaemonExecutor("test"), Given()
    seen = weakref.ref(given)
    gc.disable()
    try:
        made = threads.submit(work, given)
        del given
        assert (made.exception(SOON) is None) == (work is fine)
        del made
        wait_gone(seen)
    finally:
        gc.enable()
        threads.shutdown()


def test_a_call_that_is_cancelled_keeps_nothing_while_it_waits() -> None:
    threads, go = DaemonExecutor("test"), threading.Event()
    blocking = threads.submit(go.wait, SOON)
    given = Given()
    seen = weakref.ref(given)
    waiting = threads.submit(fine, given)
    del given
    assert waiting.cancel()
    assert seen() is None
    go.set()
    assert blocking.result(SOON)
    assert threads.submit(int, "7").result(SOON) == 7, "the next one is made"
    threads.shutdown()


async def test_so_does_one_that_no_one_awaits_any_more() -> None:
    threads, go = DaemonExecutor("test"), threading.Event()
    blocking = threads.submit(go.wait, SOON)
    given = Given()
    seen = weakref.ref(given)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.wrap_future(threads.submit(fine, given))
    del given
    assert seen() is None
    go.set()
    assert blocking.result(SOON)
    threads.shutdown()
