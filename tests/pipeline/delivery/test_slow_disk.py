"""Tests of a sink whose disk hangs or is slow."""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.model import Instant
from tests.pipeline.delivery.support import (
    Bench,
    InlineExecutor,
    ListQueue,
    StoredRecords,
    points_of,
    virtual,
)


class SlowExecutor(InlineExecutor):
    """An executor whose calls take some virtual time, except for the first one."""

    def __init__(self, seconds: float) -> None:
        self.seconds = 0.0
        self.later = seconds

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done = super().submit(fn, *args, **kwargs)
        if not self.seconds:  # the first call opens the queue
            self.seconds = self.later
            return done
        future: Future[Any] = Future()
        asyncio.get_running_loop().call_later(self.seconds, future.set_result, done.result())
        return future


class HangingDisk:
    """A disk that hangs while `responds` is not set, with real threads and in real time."""

    def __init__(self) -> None:
        self.responds = threading.Event()
        self.responds.set()

    def __call__(self) -> None:
        self.responds.wait(20)


@pytest.mark.slow
async def test_a_disk_that_hangs_does_not_block_the_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.delivery.queued_sink._MAINTENANCE_INTERVAL", 0.02)
    monkeypatch.setattr("pipeline.delivery.queued_sink._CLOSE_SECONDS", 0.1)
    monkeypatch.setattr("pipeline.delivery.queued_sink._MIN_FLUSH_SECONDS", 0.1)
    disk, bench = HangingDisk(), Bench(executor=DaemonExecutor)
    try:
        async with bench.sink:
            running = asyncio.create_task(bench.sink.run(bench.inbox))
            bench.give(1)
            while not bench.push.accepted:
                await asyncio.sleep(0.001)
            bench.queue.fails["append"] = disk
            disk.responds.clear()
            for _ in range(50):
                bench.give(2)
            while "has not responded" not in caplog.text:
                await asyncio.sleep(0.001)
            assert len(bench.inbox) == 49
            assert bench.value("queue_writable") == 0
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert "gave up closing the queue in /queue" in caplog.text
        # It is unknown what happens to the record that the thread has.
        assert bench.by_reason("dropped_total") == {"shutdown": 2}
        assert bench.imbalance == 0
    finally:
        disk.responds.set()
    # The thread completes its calls.
    while not bench.queue.closed:
        await asyncio.sleep(0.001)
    assert points_of(bench.stored.records) == 2


@pytest.mark.slow
async def test_a_disk_that_responds_again_is_used_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.delivery.queued_sink._MAINTENANCE_INTERVAL", 0.02)
    caplog.set_level("INFO", "podgpu")
    disk, bench = HangingDisk(), Bench(executor=DaemonExecutor)
    async with bench.life():
        bench.queue.fails["append"] = disk
        disk.responds.clear()
        for _ in range(50):
            bench.give(2)
        while "has not responded" not in caplog.text:
            await asyncio.sleep(0.001)
        disk.responds.set()
        while len(bench.push.accepted) < 50 or "responds again" not in caplog.text:
            await asyncio.sleep(0.001)
        assert bench.value("queue_writable") == 1
        assert bench.imbalance == 0


class SlowFolder:
    """Opens queues as soon as its disk responds."""

    def __init__(self) -> None:
        self.disk = HangingDisk()
        self.disk.responds.clear()
        self.opens = 0
        self.opened: list[ListQueue] = []

    def __call__(self, options: QueueOptions, kind: str, now: Callable[[], Instant]) -> ListQueue:
        self.opens += 1
        self.disk()
        self.opened.append(ListQueue(StoredRecords(), durable=True, max_size=1000))
        return self.opened[-1]


@pytest.mark.slow
async def test_a_folder_that_opens_slowly_is_waited_for_in_several_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.delivery.queue_thread._FIRST_WAIT", 0.05)
    monkeypatch.setattr("pipeline.delivery.queue_thread._NEXT_WAIT", 0.1)
    folder = SlowFolder()
    bench = Bench(open_queue=folder, executor=DaemonExecutor)
    for _ in range(3):
        with pytest.raises(TransientError, match="/queue of the queue does not respond") as caught:
            await bench.sink.__aenter__()
        assert caught.value.retry_after == 0.05
    folder.disk.responds.set()
    async with asyncio.timeout(10):
        while not folder.opened:
            await asyncio.sleep(0.001)
        async with bench.life():
            bench.give(1)
            await bench.wait(0.01)
    assert bench.push.accepted == [0]
    assert folder.opens == 1
    assert folder.opened[0].closed


async def test_a_folder_that_opens_after_its_sink_is_gone_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.delivery.queue_thread._FIRST_WAIT", 0.05)
    folder = SlowFolder()
    bench = Bench(open_queue=folder, executor=DaemonExecutor)
    with pytest.raises(TransientError):
        await bench.sink.__aenter__()
    bench.sink = bench._new_sink()
    gc.collect()
    folder.disk.responds.set()
    async with asyncio.timeout(10):
        while not folder.opened or not folder.opened[0].closed:
            await asyncio.sleep(0.001)


@virtual
async def test_a_folder_that_cannot_be_opened_now_is_retried() -> None:
    errors: list[Exception] = [TransientError("still being closed", retry_after=1.0)]
    bench = Bench()

    def busy(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> MemoryQueue:
        assert kind == "lines"
        if errors:
            raise errors.pop()
        return bench._open(options, kind, now)

    bench.open_queue = busy
    bench.sink = bench._new_sink()
    with pytest.raises(TransientError, match="still being closed"):
        await bench.sink.__aenter__()
    async with bench.life():
        bench.give(1)
        await bench.wait(1)
    assert bench.push.accepted == [0]


@pytest.mark.parametrize("call", ["append", "settle", "maintain", "close"])
async def test_a_stop_waits_for_a_hanging_disk_for_the_flush_and_close_times(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any call. What is still in the inbox is counted by the runtime, which closed it."""
    monkeypatch.setattr("pipeline.delivery.queued_sink._CLOSE_SECONDS", 0.2)
    monkeypatch.setattr("pipeline.delivery.queued_sink._MIN_FLUSH_SECONDS", 0.1)
    disk, bench = HangingDisk(), Bench(executor=DaemonExecutor, flush=0.1, fsync="50ms")
    try:
        async with asyncio.timeout(10):
            async with bench.sink:
                bench.queue.fails[call] = disk
                disk.responds.clear()
                for _ in range(5):
                    bench.give(2)
                bench.inbox.close()
                await bench.sink.run(bench.inbox)
        left = 0
        while bench.inbox.take_nowait() is not None:
            left += 2
        assert bench.value("produced_total") + left == bench.given
        assert bench.imbalance == 0
    finally:
        disk.responds.set()


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("end", [1.9, 2.1, 30])
async def test_a_stop_waits_for_a_slow_disk_and_the_receiver_for_one_flush_time(end: float) -> None:
    bench = Bench(executor=lambda _: SlowExecutor(end))
    async with bench.sink:
        bench.give(1)
        bench.inbox.close()
        started = bench.clock.now()
        await bench.sink.run(bench.inbox)
        assert started.seconds_until(bench.clock.now()) <= 2.01
    assert started.seconds_until(bench.clock.now()) <= (6 if end < 2 else 3.01)
    assert bench.by_reason("dropped_total") == ({} if end < 2 else {"shutdown": 1})
