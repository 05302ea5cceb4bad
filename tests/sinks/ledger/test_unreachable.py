"""A file that can't be had now is a fault with a mend, whatever the reason: nothing ends podgpu."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.ledger.errors import LedgerError
from pipeline.model import NS
from pipeline.model.usage_window import UsageWindow
from sinks.ledger import sink as module
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from sinks.ledger.writer_lock import Lock
from tests.pipeline.ledger.keeping import FOREVER
from tests.sinks.ledger.bench import GPU, SHOWN, Bench, asked, off, seconds_of
from tests.support.nodes import at, gpu
from tests.support.sinks import FakeSinkContext
from tests.support.usage import account

ROOT = Path(__file__).parents[3]
NO_ONE = 65534
ENTERING = """
import asyncio, os, sys
from pathlib import Path
from pipeline.base.errors import TransientError
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.support.sinks import FakeSinkContext

async def main():
    sink = LedgerSink(Options(path=Path(sys.argv[1])), FakeSinkContext("usage"))
    if os.geteuid() == 0:
        os.seteuid(int(sys.argv[2]))
    try:
        async with sink:
            print("it is open")
    except TransientError as error:
        print(error)

asyncio.run(main())
"""
STALE = OSError(116, "Stale file handle")


def test_a_folder_that_may_not_be_searched_is_a_fault_with_a_fix(tmp_path: Path) -> None:
    """Only another user is refused, and who that is holds for a whole process."""
    folder = tmp_path / "x" / "y"
    folder.mkdir(parents=True)
    mode = 0o700 if os.geteuid() == 0 else 0
    folder.parent.chmod(mode)
    command = [sys.executable, "-c", ENTERING, str(folder / "usage.db"), str(NO_ONE)]
    try:
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    finally:
        folder.parent.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{folder}: permission denied; create it, or mount it writable")


async def refused(path: Path) -> str:
    with pytest.raises(TransientError) as caught:
        await LedgerSink(Options(path=path), FakeSinkContext("usage")).__aenter__()
    return str(caught.value)


async def test_a_file_system_that_fails_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise STALE

    path = tmp_path / "usage.db"
    monkeypatch.setattr(LedgerFile, "_read_state", refuse)
    assert await refused(path) == f"{path}: stale file handle; check its disk"


async def test_a_file_system_that_fails_while_it_is_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, refusing = LedgerFile._put, True

    def refuse(file: LedgerFile, batch: Any) -> None:
        if refusing:
            raise STALE
        put(file, batch)

    monkeypatch.setattr(LedgerFile, "_put", refuse)
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("errors").get("commit io_error", 0) >= 1)
        refusing = False
        bench.tell(20)
    assert await seconds_of(bench.path) == 20


async def test_another_file_whose_first_commit_fails_has_all_that_is_known_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put, refusing = LedgerFile._put, False

    def refuse(file: LedgerFile, batch: Any) -> None:
        if refusing:
            raise LedgerError(str(file.path), "database is locked", "stop it", reason="locked")
        put(file, batch)

    monkeypatch.setattr(LedgerFile, "_put", refuse)
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        await asyncio.to_thread(bench.path.rename, tmp_path / "taken.db")
        refusing = True
        bench.inbox.offer(SHOWN(account(gpu(1), until=at(20), unheld=20 * NS)))
        await bench.until(lambda: bench.counted("errors").get("commit locked", 0) >= 1)
        refusing = False
        await bench.until(lambda: bench.counted("emitted")[""] >= 3)
    found = await off(asked, bench.path, "SELECT device FROM state ORDER BY device")
    assert found == [(gpu(0).uuid,), (gpu(1).uuid,)]
    assert "by another program" in caplog.text


async def test_who_asks_for_a_window_is_reported_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise STALE

    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        monkeypatch.setattr(module, "open_readonly", refuse)
        with pytest.raises(TransientError, match=f"{bench.path}: stale file handle; check"):
            await bench.sink.window(0, FOREVER)


async def test_who_asks_while_it_is_being_read_is_reported_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, read = threading.Event(), module._read

    def hang(path: Path, start_ns: int, end_ns: int) -> UsageWindow:
        hanging.wait(60)
        return read(path, start_ns, end_ns)

    monkeypatch.setattr(module, "_read", hang)
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        asking = asyncio.create_task(bench.sink.window(0, FOREVER))
        await bench.until(lambda: bench.sink._query is not None)
        with pytest.raises(TransientError, match="is still running"):
            await bench.sink.window(0, FOREVER)
        hanging.set()
        assert isinstance(await asking, UsageWindow)


async def test_accounts_of_a_file_that_is_not_open_yet_are_not_taken_for_none(
    tmp_path: Path,
) -> None:
    """The totals begin anew then, and whoever starts podgpu is told why."""
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
    lock = Lock(bench.path)
    await asyncio.to_thread(lock.take)
    again = Bench(bench.path)
    with pytest.raises(TransientError, match="is in use"):
        await again.sink.__aenter__()
    asking = asyncio.create_task(again.sink.stored_usage())
    await again.until(asking.done)
    assert again.clock.seconds > 9
    with pytest.raises(TransientError, match=f"{bench.path} is not open yet"):
        await asking
    lock.release()
    async with again.running():
        given_out = await again.sink.stored_usage()
        assert given_out is not None


@pytest.mark.parametrize("why", ["slow", "in use"])
async def test_a_file_that_opens_within_seconds_is_waited_for(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals don't begin anew since a disk was busy when podgpu started."""
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
    again, slow, read = Bench(bench.path), threading.Event(), LedgerFile._read_state
    lock = Lock(bench.path)

    def hang(file: LedgerFile, *given: Any) -> Any:
        slow.wait(60)
        return read(file, *given)

    if why == "slow":
        monkeypatch.setattr(LedgerFile, "_read_state", hang)
    else:
        await asyncio.to_thread(lock.take)
    entering = asyncio.create_task(again.sink.__aenter__())
    await again.until(entering.done)
    with pytest.raises(TransientError):
        await entering
    asking = asyncio.create_task(again.sink.stored_usage())
    await asyncio.sleep(0.05)
    assert not asking.done()
    slow.set()
    lock.release()
    async with again.running():
        given_out = await asking
        assert given_out is not None
        assert [one.device for one in given_out.devices] == [GPU.uuid]


async def test_a_file_that_cannot_be_opened_is_not_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "no folder" / "usage.db")
    with pytest.raises(TransientError):
        await bench.sink.__aenter__()
    with pytest.raises(TransientError, match="is not open yet"):
        await bench.sink.stored_usage()
    assert bench.clock.seconds == 0
