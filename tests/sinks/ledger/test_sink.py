"""The sink: it commits, goes on from its file, and holds up nobody."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.component.contracts import UsageHistory
from pipeline.model import NS
from pipeline.model.usage_window import UsageWindow
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from sinks.ledger.writer_lock import Lock, LockedError
from tests.pipeline.ledger.keeping import FOREVER
from tests.sinks.ledger.bench import Bench, off, seconds_of
from tests.support.nodes import at
from tests.support.sinks import FakeSinkContext


async def test_what_was_reported_is_written_and_the_rest_when_it_stops(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        assert await seconds_of(bench.path) == 10
        bench.tell(12)
    assert await seconds_of(bench.path) == 12
    assert sorted(each.name for each in tmp_path.iterdir()) == ["usage.db", "usage.db.lock"]


async def test_it_reports_how_the_accounts_stood_and_continues_from_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "usage.db")
    assert isinstance(bench.sink, UsageHistory)
    async with bench.running():
        assert await bench.sink.stored_usage() is None, "there was nothing before"
        bench.tell(10)
    again = Bench(tmp_path / "usage.db")
    again.clock.seconds = 30
    async with again.running():
        given_out = await again.sink.stored_usage()
        assert given_out is not None
        (device,) = given_out.devices
        assert (device.elapsed_ns, device.at) == (10 * NS, at(10))
        assert device.containers[0].holding is not None
        again.tell(10)
        again.tell(40)
    assert await seconds_of(again.path) == 40


async def test_the_window_is_read_while_it_runs_and_not_when_it_does_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "usage.db")
    with pytest.raises(TransientError, match="is not open"):
        await bench.sink.window(0, FOREVER)
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        window = await bench.sink.window(0, FOREVER)
        assert isinstance(window, UsageWindow)
        assert window.node == "node-1"
        assert [total.accounted_ns for total in window.totals] == [10 * NS]
        (spent, no_one) = window.usage
        assert (spent.held_ns, spent.busy_ns, spent.energy_mj, spent.holdings) == (10 * NS, 7, 9, 1)
        assert (no_one.container, no_one.held_ns) == (None, 0)


async def test_r5_a_start_that_is_given_up_leaves_no_log_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is being opened when podgpu is to stop, and the process goes at once."""
    opened, go = threading.Event(), threading.Event()
    open_it = LedgerFile.open

    def slow(file: LedgerFile) -> Any:
        found = open_it(file)
        opened.set()
        go.wait(10)
        return found

    monkeypatch.setattr(LedgerFile, "open", slow)
    sink = LedgerSink(Options(path=tmp_path / "usage.db"), FakeSinkContext("usage"))
    entering = asyncio.ensure_future(sink.__aenter__())
    await asyncio.to_thread(opened.wait, 10)
    entering.cancel()
    await asyncio.sleep(0.05)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert sorted(each.name for each in tmp_path.iterdir()) == ["usage.db", "usage.db.lock"]


async def test_a_second_podgpu_waits_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    first, second = Bench(path), Bench(path)
    async with first.running():
        first.tell(10)
        with pytest.raises(TransientError, match=f"is in use by process {os.getpid()}") as caught:
            await second.sink.__aenter__()
        assert caught.value.retry_after
    second.clock.seconds = 20
    async with second.running():
        given_out = await second.sink.stored_usage()
        assert given_out is not None
        assert given_out.devices[0].elapsed_ns == 10 * NS


async def test_a_file_that_someone_takes_away_is_restarted(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        bench.path.rename(tmp_path / "taken.db")
        bench.tell(20)
        bench.clock.seconds = 40
        await bench.until(lambda: bench.counted("emitted")[""] >= 2)
    assert await seconds_of(bench.path) == 10
    assert await seconds_of(tmp_path / "taken.db") == 10


async def test_a_folder_that_is_not_there_may_come(tmp_path: Path) -> None:
    path = tmp_path / "later" / "usage.db"
    sink = LedgerSink(Options(path=path), FakeSinkContext("usage"))
    with pytest.raises(TransientError, match="the folder does not exist; create it"):
        await sink.__aenter__()
    path.parent.mkdir()
    async with sink:
        assert path.exists()


async def test_a_disk_that_hangs_holds_up_neither_the_loop_nor_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, put = threading.Event(), LedgerFile.put

    def hang(file: LedgerFile, batch: Any) -> Any:
        hanging.wait(60)
        return put(file, batch)

    monkeypatch.setattr(LedgerFile, "put", hang)
    bench = Bench(tmp_path / "usage.db")
    async with bench.sink:
        task = asyncio.create_task(bench.sink.run(bench.inbox))
        bench.tell(10)
        await bench.until(lambda: bench.sink._writing is not None)
        bench.tell(20)
        bench.inbox.close()
        await bench.until(lambda: len(bench.inbox) == 0)
        async with asyncio.timeout(20):
            while not task.done():
                bench.clock.seconds += 1
                await asyncio.sleep(0.01)
        task.result()
    assert "does not return" in bench.ctx.own.problems["sink", "usage"].text
    hanging.set()
    async with asyncio.timeout(20):
        while not await off(free, Lock(bench.path)):
            await asyncio.sleep(0.01)
    assert await seconds_of(bench.path) == 10, "it goes on from there"


def free(lock: Lock) -> bool:
    try:
        lock.take()
    except LockedError:
        return False
    lock.release()
    return True
