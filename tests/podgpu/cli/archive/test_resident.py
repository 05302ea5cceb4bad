"""The process of `podgpu archive` that stays: when it writes, what it survives, what it imports."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podgpu.cli.archive.resident import Resident

pytestmark = pytest.mark.slow
Capsys = pytest.CaptureFixture[str]

STOP = "kill -TERM $PPID"
LATER = "{ (sleep 0.2; kill -TERM $PPID) & }"


class NoSpread(random.Random):
    """All random times are the shortest ones."""

    def uniform(self, a: float, b: float) -> float:
        return a

    def random(self) -> float:
        return 0.0


def run(
    tmp_path: Path, script: str, *, interval: float = 600, grace: float = 5, deadline: float = 5
) -> list[str]:
    """Run with a child process that is a shell script, and return what the script has logged."""
    log = tmp_path / "log"
    log.touch()
    env = {**os.environ, "LOG": str(log)}
    resident = Resident(
        ["sh", "-c", script], env, interval=interval, grace=grace, deadline=deadline, rng=NoSpread()
    )
    assert resident.run() == 0
    return log.read_text().split()


def test_it_writes_at_each_interval_until_sigterm(tmp_path: Path) -> None:
    script = f'echo w >> "$LOG"; test $(wc -l < "$LOG") -lt 4 || {STOP}'
    assert run(tmp_path, script, interval=0.02) == ["w"] * 4, "the fourth was the last one"


def test_after_sigterm_it_writes_once_more(tmp_path: Path, capsys: Capsys) -> None:
    script = f'echo w >> "$LOG"; test $(wc -l < "$LOG") -gt 1 || {LATER}'
    assert run(tmp_path, script) == ["w", "w"]
    assert "writes once more" in capsys.readouterr().err


def test_a_write_that_runs_at_sigterm_is_the_last_one(tmp_path: Path) -> None:
    assert run(tmp_path, f'{STOP}; sleep 0.3; echo done >> "$LOG"') == ["done"]


def test_the_last_write_ends_within_the_grace(tmp_path: Path, capsys: Capsys) -> None:
    script = f'echo w >> "$LOG"; {STOP}; exec sleep 60'
    assert run(tmp_path, script, grace=0.2, deadline=60) == ["w"]
    assert "took longer than 0.2 s, and was ended" in capsys.readouterr().err


def test_a_write_that_hangs_is_ended_and_tried_again(tmp_path: Path, capsys: Capsys) -> None:
    script = f'echo w >> "$LOG"; test $(wc -l < "$LOG") -gt 1 && {STOP} || exec sleep 60'
    assert run(tmp_path, script, interval=0.05, deadline=0.2) == ["w", "w"]
    error = capsys.readouterr().err
    assert "took longer than 0.2 s, and was ended" in error
    assert "No data is lost" in error


def test_a_write_that_fails_is_tried_again_later_and_later(tmp_path: Path, capsys: Capsys) -> None:
    script = f'echo w >> "$LOG"; test $(wc -l < "$LOG") -gt 1 || {LATER}; exit 1'
    assert run(tmp_path, script) == ["w", "w"]
    assert "the next try is in 60 s" in capsys.readouterr().err


def test_a_child_that_cannot_be_started_is_an_error_of_this_write(
    tmp_path: Path, capsys: Capsys
) -> None:
    stop = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -TERM {os.getpid()}"])
    env = dict(os.environ)
    missing = str(tmp_path / "missing")
    resident = Resident([missing], env, interval=600, grace=1, rng=NoSpread())
    assert resident.run() == 0
    stop.wait(5)
    assert f"cannot start {missing}: No such file" in capsys.readouterr().err


HEAVY = ("aiohttp", "asyncio", "duckdb", "grpc", "msgspec", "obstore", "orjson", "sqlite3", "yaml")


def test_the_process_that_stays_imports_little() -> None:
    program = "import sys, podgpu.cli.archive.resident; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    modules = ended.stdout.split()
    assert not {name.partition(".")[0] for name in modules} & set(HEAVY)
    assert not [name for name in modules if name.startswith(("sinks", "sources", "config"))]


def test_the_command_becomes_that_process_and_needs_little_memory(tmp_path: Path) -> None:
    ledger = tmp_path / "missing.db"
    words = ["--to", str(tmp_path), "--cluster", "east", "--ledger", str(ledger)]
    command = [sys.executable, "-m", "podgpu", "archive", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        proc = Path(f"/proc/{process.pid}")
        while b"podgpu.cli.archive.resident" not in (proc / "cmdline").read_bytes():
            time.sleep(0.02)
        while "S (sleeping)" not in (proc / "status").read_text():
            time.sleep(0.02)
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        process.terminate()
        _, error = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"podgpu: {ledger}: does not exist" in error, "the last write"
    peak = int(status["VmHWM"].split()[0])
    assert peak < 20_000, f"{peak} KiB; 13,000 where this was written"
