"""The ledger sink: it commits, continues from its file, and blocks nothing else."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.component.contracts import UsageHistory
from pipeline.ledger.file_open import LedgerError
from pipeline.model import NS
from pipeline.model.ledger_usage import UsageWindow
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from sinks.ledger.writer_lock import Lock
from tests.pipeline.ledger.open_ledger import FOREVER
from tests.sinks.ledger.harness import SinkHarness, in_thread, seconds_of
from tests.support.nodes import at
from tests.support.sinks import FakeSinkContext


async def test_snapshots_are_committed_at_intervals_and_when_the_sink_stops(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        assert await seconds_of(harness.path) == 10
        harness.send_account(12)
    assert await seconds_of(harness.path) == 12
    assert sorted(each.name for each in tmp_path.iterdir()) == ["usage.db", "usage.db.lock"]


async def test_stored_usage_is_returned_after_a_restart_and_continued(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    assert isinstance(harness.sink, UsageHistory)
    async with harness.running():
        assert await harness.sink.stored_usage() is None, "the file is new"
        harness.send_account(10)
    restarted = SinkHarness(tmp_path / "usage.db")
    restarted.clock.seconds = 30
    async with restarted.running():
        stored = await restarted.sink.stored_usage()
        assert stored is not None
        (device,) = stored.devices
        assert (device.elapsed_ns, device.at) == (10 * NS, at(10))
        assert device.containers[0].holding is not None
        restarted.send_account(10)
        restarted.send_account(40)
    assert await seconds_of(restarted.path) == 40


async def test_a_window_can_be_read_only_while_the_sink_is_open(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    with pytest.raises(TransientError, match="is not open"):
        await harness.sink.window(0, FOREVER)
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        window = await harness.sink.window(0, FOREVER)
        assert isinstance(window, UsageWindow)
        assert window.node == "node-1"
        assert [total.accounted_ns for total in window.totals] == [10 * NS]
        (container, no_one) = window.usage
        assert (container.held_ns, container.busy_ns, container.energy_mj, container.holdings) == (
            10 * NS,
            7,
            9,
            1,
        )
        assert (no_one.container, no_one.held_ns) == (None, 0)
        [hour] = await harness.sink.hours(0, FOREVER)
        assert (hour.accounted_ns, hour.held_ns, hour.energy_mj) == (10 * NS, 10 * NS, 9)


async def test_r5_a_start_that_is_cancelled_leaves_no_log_next_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is being opened when podgpu is stopped, and the process ends immediately."""
    opened, proceed = threading.Event(), threading.Event()
    open_it = LedgerFile.open

    def slow(file: LedgerFile) -> Any:
        found = open_it(file)
        opened.set()
        proceed.wait(10)
        return found

    monkeypatch.setattr(LedgerFile, "open", slow)
    sink = LedgerSink(Options(path=tmp_path / "usage.db"), FakeSinkContext("usage"))
    entering = asyncio.ensure_future(sink.__aenter__())
    await asyncio.to_thread(opened.wait, 10)
    entering.cancel()
    await asyncio.sleep(0.05)
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert sorted(each.name for each in tmp_path.iterdir()) == ["usage.db", "usage.db.lock"]


async def test_a_second_podgpu_waits_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    first, second = SinkHarness(path), SinkHarness(path)
    async with first.running():
        first.send_account(10)
        with pytest.raises(TransientError, match=f"is in use by process {os.getpid()}") as caught:
            await second.sink.__aenter__()
        assert caught.value.retry_after
    second.clock.seconds = 20
    async with second.running():
        stored = await second.sink.stored_usage()
        assert stored is not None
        assert stored.devices[0].elapsed_ns == 10 * NS


async def test_a_file_that_another_program_renames_is_created_again(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        harness.path.rename(tmp_path / "taken.db")
        harness.send_account(20)
        harness.clock.seconds = 40
        await harness.until(lambda: harness.counted("emitted")[""] >= 2)
    assert await seconds_of(harness.path) == 10
    assert await seconds_of(tmp_path / "taken.db") == 10


async def test_a_missing_folder_is_a_transient_error(tmp_path: Path) -> None:
    path = tmp_path / "later" / "usage.db"
    sink = LedgerSink(Options(path=path), FakeSinkContext("usage"))
    with pytest.raises(TransientError, match="the folder does not exist; create it"):
        await sink.__aenter__()
    path.parent.mkdir()
    async with sink:
        assert path.exists()


@pytest.mark.slow
async def test_a_disk_that_hangs_blocks_neither_the_event_loop_nor_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, put = threading.Event(), LedgerFile.put

    def hang(file: LedgerFile, batch: Any) -> Any:
        hanging.wait(60)
        return put(file, batch)

    monkeypatch.setattr(LedgerFile, "put", hang)
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.sink:
        task = asyncio.create_task(harness.sink.run(harness.inbox))
        harness.send_account(10)
        await harness.until(lambda: harness.sink._writing is not None)
        harness.send_account(20)
        harness.inbox.close()
        await harness.until(lambda: len(harness.inbox) == 0)
        async with asyncio.timeout(20):
            while not task.done():
                harness.clock.seconds += 1
                await asyncio.sleep(0.01)
        task.result()
    assert "does not return" in harness.ctx.own.problems["sink", "usage"].text
    hanging.set()
    async with asyncio.timeout(20):
        while not await in_thread(is_free, Lock(harness.path)):
            await asyncio.sleep(0.01)
    assert await seconds_of(harness.path) == 10, "the commit completes"


def is_free(lock: Lock) -> bool:
    try:
        lock.take()
    except LedgerError:
        return False
    lock.release()
    return True
