"""Other programs that change the files while they are written: nothing is lost unnoticed."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.ledger.file_open import LedgerError
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.open_ledger import FOREVER
from tests.sinks.ledger.harness import SinkHarness, in_thread, seconds_of
from tests.support.sinks import FakeSinkContext


def copy_as_killed(path: Path) -> Path:
    """Copy the files as a kill would leave them; return the copy."""
    folder = path.with_name("killed")
    folder.mkdir()
    for each in path.parent.glob(f"{path.name}*"):
        shutil.copy(each, folder)
    (folder / f"{path.name}-shm").unlink(missing_ok=True)
    return folder / path.name


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_log_that_another_program_removes_causes_no_loss(tmp_path: Path, end: str) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        harness.path.with_name(f"{harness.path.name}{end}").unlink()
        harness.send_account(20)
        harness.clock.seconds = 40
        await harness.until(lambda: harness.counted("emitted")[""] >= 2)
        if end == "-wal":
            assert "or its log: podgpu opens it" in harness.ctx.own.problems["sink", "usage"].text
        restarted = SinkHarness(await in_thread(copy_as_killed, harness.path))
        async with restarted.running():
            stored = await restarted.sink.stored_usage()
            assert stored is not None
        assert await seconds_of(restarted.path) == 20
    assert await seconds_of(harness.path) == 20


async def test_a_file_system_without_modes_is_an_error_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(TransientError, match=r"operation not permitted; mount the folder"):
        async with LedgerSink(Options(path=tmp_path / "usage.db"), FakeSinkContext("usage")):
            pass


@pytest.mark.parametrize("error", [LedgerError("x", "y", "z"), OSError(5, "I/O"), MemoryError()])
async def test_no_thread_is_left_after_any_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        harness = SinkHarness(tmp_path / "usage.db")
        async with harness.running():
            await harness.sink.window(0, FOREVER)

    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(LedgerFile, "open", refuse)
    last = SinkHarness(tmp_path / "usage.db")
    with pytest.raises((TransientError, OSError, MemoryError)):
        await last.sink.__aenter__()
    await last.until(lambda: not new_sink_threads(before))


def new_sink_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    every = set(threading.enumerate()) - before
    return [each for each in every if each.name.startswith("podgpu-sink")]
