"""Tests of delivery with the real queue: real files, a real thread, real time."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipeline.base.clock import SystemClock
from pipeline.base.errors import TransientError
from pipeline.delivery.contract import Acked, Outcome, Record, Retry
from pipeline.delivery.queue.factory import open_queue
from pipeline.host.daemon_threads import DaemonExecutor
from tests.pipeline.delivery.support import Bench, number_of


def real_bench(path: Path | None, *, name: str = "under-test", longest: str = "30s") -> Bench:
    bench = Bench(
        path=path,
        initial="10ms",
        longest=longest,
        open_queue=open_queue,
        executor=DaemonExecutor,
        name=name,
    )
    bench.ctx.clock = SystemClock()
    return bench


def refuses(_: Sequence[Record]) -> Outcome:
    return Retry("unavailable", "collector:4317 refuses connections")


async def wait_until(bench: Bench, family: str, value: float) -> None:
    async with asyncio.timeout(10):
        while bench.value(family) != value:
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    async with asyncio.timeout(20), bench.life():
        yield bench


@pytest.mark.parametrize("durable", [True, False], ids=["disk", "memory"])
async def test_d1_an_outage_loses_nothing(tmp_path: Path, durable: bool) -> None:
    bench = real_bench(tmp_path / "queue" if durable else None, longest="50ms")
    bench.push.answer = refuses
    async with running(bench):
        for _ in range(200):
            bench.give(1, 2)
        await wait_until(bench, "queued", 600)
        assert bench.imbalance == 0
        bench.push.answer = lambda _: Acked()
        await wait_until(bench, "emitted_total", 600)
    assert bench.push.accepted == list(range(400))
    assert bench.imbalance == 0
    assert bench.value("dropped_total") == 0


async def test_o11_records_on_disk_are_sent_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    before = real_bench(path)
    async with running(before):
        before.give(7)
        await wait_until(before, "emitted_total", 7)
        before.push.answer = refuses
        before.give(1, 2)
        await wait_until(before, "queued", 3)
        before.give(3)  # just before the stop
    assert before.value("queued") == 6
    assert before.imbalance == 0
    after = real_bench(path)
    after.push.encoded = 4
    async with running(after):
        after.give(4)
        await wait_until(after, "emitted_total", 10)
        # The counts of the previous process are not included.
        assert after.value("recovered_total") == 6
        assert after.value("produced_total") == 4
    assert after.push.accepted == [1, 2, 3, 4]
    assert after.imbalance == 0


async def test_records_in_memory_are_counted_as_dropped_at_the_stop() -> None:
    bench = real_bench(None)
    bench.push.answer = refuses
    async with running(bench):
        bench.give(1, 2)
        await wait_until(bench, "queued", 3)
    assert bench.value("dropped_total") == 3
    assert bench.value("queued") == bench.imbalance == 0


async def test_d9_a_second_sink_cannot_open_the_queue_of_another(tmp_path: Path) -> None:
    first, second = (
        real_bench(tmp_path / "queue", name="a"),
        real_bench(tmp_path / "queue", name="b"),
    )
    async with first.sink:
        with pytest.raises(TransientError, match="another sink uses it"):
            await second.sink.__aenter__()
        assert second.push.entered == 0


@pytest.mark.slow
async def test_a_queue_that_closes_late_can_be_opened_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a reload while the disk flushed slowly."""
    monkeypatch.setattr("pipeline.delivery.queued_sink._CLOSE_SECONDS", 0.05)
    monkeypatch.setattr("pipeline.delivery.queued_sink._MIN_FLUSH_SECONDS", 0.05)
    bench, flushed, original = real_bench(tmp_path / "queue"), threading.Event(), os.fsync
    bench.push.answer = refuses

    def slow_fsync(fd: int) -> None:
        flushed.wait(10)
        original(fd)

    async with running(bench):
        bench.give(1, 2)
        await wait_until(bench, "queued", 3)
        monkeypatch.setattr(os, "fsync", slow_fsync)
    bench.sink = bench._new_sink()
    for _ in range(3):
        with pytest.raises(TransientError, match="is in use by this podgpu"):
            await bench.sink.__aenter__()
    flushed.set()
    bench.push.answer = lambda _: Acked()
    async with asyncio.timeout(10):
        while True:
            try:
                await bench.sink.__aenter__()
                break
            except TransientError:
                await asyncio.sleep(0.01)
        bench.inbox.close()
        await bench.sink.run(bench.inbox)
        await bench.sink.__aexit__(None, None, None)
    assert bench.push.accepted == [0, 1]
    assert bench.imbalance == 0


@pytest.mark.slow
async def test_o10_a_sink_whose_receiver_hangs_does_not_block_another_sink(tmp_path: Path) -> None:
    dead, well = real_bench(tmp_path / "a", name="dead"), real_bench(tmp_path / "b", name="well")

    async def hangs(_: Sequence[Record]) -> Outcome:
        await asyncio.sleep(60)
        return Acked()

    dead.push.answer, dead.flush = hangs, 0.0
    dead.sink = dead._new_sink()
    async with running(dead), running(well):
        for _ in range(100):
            dead.give()
            well.give()
        await wait_until(well, "emitted_total", 100)
        await wait_until(dead, "queued", 100)
    assert dead.imbalance == well.imbalance == 0


async def test_records_of_all_sizes_arrive_as_they_were(tmp_path: Path) -> None:
    bench = real_bench(tmp_path / "queue")
    bench.push.answer = refuses
    sizes = [4, 10, 100, 999, 1000]
    async with running(bench):
        for size in sizes:
            bench.push.size = size
            bench.give(2)
            await wait_until(bench, "produced_total", bench.given)
        bench.push.answer = lambda _: Acked()
        await wait_until(bench, "emitted_total", bench.given)
    accepted = [record for _, message in bench.push.messages[1:] for record in message]
    data = {number_of(record): record.data for record in accepted}
    assert [len(data[number]) for number in range(len(sizes))] == sizes
