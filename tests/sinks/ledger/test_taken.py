"""What others do to the file while it is written: nothing is lost, and nothing goes on unseen."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import TransientError
from pipeline.ledger.errors import LedgerError
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.keeping import FOREVER
from tests.sinks.ledger.bench import Bench, off, seconds_of
from tests.support.sinks import FakeSinkContext


def killed_now(path: Path) -> Path:
    """What would be there after a kill: the files as they lie there."""
    folder = path.with_name("killed")
    folder.mkdir()
    for each in path.parent.glob(f"{path.name}*"):
        shutil.copy(each, folder)
    (folder / f"{path.name}-shm").unlink(missing_ok=True)
    return folder / path.name


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_log_that_someone_removes_costs_nothing(tmp_path: Path, end: str) -> None:
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        bench.path.with_name(f"{bench.path.name}{end}").unlink()
        bench.tell(20)
        bench.clock.seconds = 40
        await bench.until(lambda: bench.counted("emitted")[""] >= 2)
        if end == "-wal":
            assert "or its log was removed" in bench.ctx.own.problems["sink", "usage"].text
        again = Bench(await off(killed_now, bench.path))
        async with again.running():
            given_out = await again.sink.stored_usage()
            assert given_out is not None
        assert await seconds_of(again.path) == 20
    assert await seconds_of(bench.path) == 20


async def test_a_file_system_without_modes_is_a_fault_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(TransientError, match=r"operation not permitted; mount the folder"):
        async with LedgerSink(Options(path=tmp_path / "usage.db"), FakeSinkContext("usage")):
            pass


@pytest.mark.parametrize("error", [LedgerError("x", "y", "z"), OSError(5, "I/O"), MemoryError()])
async def test_no_thread_stays_whatever_becomes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        bench = Bench(tmp_path / "usage.db")
        async with bench.running():
            await bench.sink.window(0, FOREVER)

    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(LedgerFile, "open", refuse)
    last = Bench(tmp_path / "usage.db")
    with pytest.raises((TransientError, OSError, MemoryError)):
        await last.sink.__aenter__()
    await last.until(lambda: not ours(before))


def ours(before: set[threading.Thread]) -> list[threading.Thread]:
    every = set(threading.enumerate()) - before
    return [each for each in every if each.name.startswith("podgpu-sink")]
