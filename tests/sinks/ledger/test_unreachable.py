"""A file that is not available now is an error with a fix: it never ends podgpu."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.file_open import LedgerError
from pipeline.model import NS
from pipeline.model.ledger_usage import UsageWindow
from sinks.ledger import sink as module
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from sinks.ledger.writer_lock import Lock
from tests.pipeline.ledger.open_ledger import FOREVER
from tests.sinks.ledger.harness import GPU, SNAPSHOT, SinkHarness, in_thread, query_file, seconds_of
from tests.support.nodes import at, gpu
from tests.support.sinks import FakeSinkContext
from tests.support.usage import account

ROOT = Path(__file__).parents[3]
UNPRIVILEGED_UID = 65534
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


@pytest.mark.slow
def test_a_folder_without_permission_is_an_error_with_a_fix(tmp_path: Path) -> None:
    """The whole process runs as another user, because access is checked per user."""
    folder = tmp_path / "x" / "y"
    folder.mkdir(parents=True)
    mode = 0o700 if os.geteuid() == 0 else 0
    folder.parent.chmod(mode)
    command = [sys.executable, "-c", ENTERING, str(folder / "usage.db"), str(UNPRIVILEGED_UID)]
    try:
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    finally:
        folder.parent.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{folder}: permission denied; create it, or mount it writable")


async def error_of_opening(path: Path) -> str:
    with pytest.raises(TransientError) as caught:
        await LedgerSink(Options(path=path), FakeSinkContext("usage")).__aenter__()
    return str(caught.value)


async def test_a_file_system_error_while_opening_names_the_file_and_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise STALE

    path = tmp_path / "usage.db"
    monkeypatch.setattr(LedgerFile, "_read_state", refuse)
    assert await error_of_opening(path) == f"{path}: stale file handle; check its disk"


async def test_a_file_system_error_while_writing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, refusing = LedgerFile._put, True

    def refuse(file: LedgerFile, store: BatchWriter, batch: Any) -> None:
        if refusing:
            raise STALE
        put(file, store, batch)

    monkeypatch.setattr(LedgerFile, "_put", refuse)
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("errors").get("commit io_error", 0) >= 1)
        refusing = False
        harness.send_account(20)
    assert await seconds_of(harness.path) == 20


@pytest.mark.slow
async def test_a_new_file_whose_first_commit_fails_gets_everything_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put, refusing = LedgerFile._put, False

    def refuse(file: LedgerFile, store: BatchWriter, batch: Any) -> None:
        if refusing:
            raise LedgerError(str(file.path), "database is locked", "stop it", reason="locked")
        put(file, store, batch)

    monkeypatch.setattr(LedgerFile, "_put", refuse)
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        await asyncio.to_thread(harness.path.rename, tmp_path / "taken.db")
        refusing = True
        harness.inbox.offer(SNAPSHOT(account(gpu(1), until=at(20), unheld=20 * NS)))
        await harness.until(lambda: harness.counted("errors").get("commit locked", 0) >= 1)
        refusing = False
        await harness.until(lambda: harness.counted("emitted")[""] >= 3)
    found = await in_thread(query_file, harness.path, "SELECT device FROM state ORDER BY device")
    assert found == [(gpu(0).uuid,), (gpu(1).uuid,)]
    assert "another program removed or replaced" in caplog.text


async def test_a_window_request_returns_the_file_system_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise STALE

    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        monkeypatch.setattr(module, "open_readonly", refuse)
        with pytest.raises(TransientError, match=f"{harness.path}: stale file handle; check"):
            await harness.sink.window(0, FOREVER)


async def test_a_second_window_request_is_refused_while_the_first_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, read = threading.Event(), module._read

    def hang(path: Path, query: Any, start_ns: int, end_ns: int) -> Any:
        hanging.wait(60)
        return read(path, query, start_ns, end_ns)

    monkeypatch.setattr(module, "_read", hang)
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        request = asyncio.create_task(harness.sink.window(0, FOREVER))
        await harness.until(lambda: harness.sink._query is not None)
        with pytest.raises(TransientError, match="is still running"):
            await harness.sink.window(0, FOREVER)
        hanging.set()
        assert isinstance(await request, UsageWindow)


@pytest.mark.slow
async def test_stored_usage_of_a_file_that_is_not_open_is_an_error_and_not_empty(
    tmp_path: Path,
) -> None:
    """Otherwise the totals would start at zero; the error explains why."""
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
    lock = Lock(harness.path)
    await asyncio.to_thread(lock.take)
    restarted = SinkHarness(harness.path)
    with pytest.raises(TransientError, match="is in use"):
        await restarted.sink.__aenter__()
    request = asyncio.create_task(restarted.sink.stored_usage())
    await restarted.until(request.done)
    assert restarted.clock.seconds > 9
    with pytest.raises(TransientError, match=f"{harness.path} is not open yet"):
        await request
    lock.release()
    async with restarted.running():
        stored = await restarted.sink.stored_usage()
        assert stored is not None


@pytest.mark.slow
@pytest.mark.parametrize("why", ["slow", "in use"])
async def test_stored_usage_waits_for_a_file_that_opens_within_seconds(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals don't start at zero because a disk was busy when podgpu started."""
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
    restarted, slow, read = SinkHarness(harness.path), threading.Event(), LedgerFile._read_state
    lock = Lock(harness.path)

    def hang(file: LedgerFile, *arguments: Any) -> Any:
        slow.wait(60)
        return read(file, *arguments)

    if why == "slow":
        monkeypatch.setattr(LedgerFile, "_read_state", hang)
    else:
        await asyncio.to_thread(lock.take)
    entering = asyncio.create_task(restarted.sink.__aenter__())
    await restarted.until(entering.done)
    with pytest.raises(TransientError):
        await entering
    request = asyncio.create_task(restarted.sink.stored_usage())
    await asyncio.sleep(0.05)
    assert not request.done()
    slow.set()
    lock.release()
    async with restarted.running():
        stored = await request
        assert stored is not None
        assert [one.device for one in stored.devices] == [GPU.uuid]


async def test_stored_usage_does_not_wait_for_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "no folder" / "usage.db")
    with pytest.raises(TransientError):
        await harness.sink.__aenter__()
    with pytest.raises(TransientError, match="is not open yet"):
        await harness.sink.stored_usage()
    assert harness.clock.seconds == 0
