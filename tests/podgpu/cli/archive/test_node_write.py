"""`podgpu archive --once` writes what is closed; what cannot be written stays in the ledger."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from pipeline.archive import object_key
from pipeline.ledger.archive_backlog import ArchiveBacklog, read_backlog
from pipeline.ledger.archive_open import archive_lock, open_for_sealing
from pipeline.ledger.file_open import LedgerError
from pipeline.ledger.outbox import first_object
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import Instant
from podgpu.cli.archive import node_write
from podgpu.cli.commands import run_command
from tests.pipeline.ledger.open_ledger import moved, window_of
from tests.pipeline.ledger.test_migrations import OF_VERSION_2
from tests.podgpu.cli.usage.ledgers import LAST, write_day
from tests.support.nodes import START

pytestmark = pytest.mark.slow
Capsys = pytest.CaptureFixture[str]
DAY_LATER = moved(START, (LAST + 24) * 3600)


class _Stopped:
    def now(self) -> Instant:
        return DAY_LATER


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(node_write, "SystemClock", _Stopped)
    return write_day(tmp_path / "usage.db")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


def run(ledger: Path, archive: Path, *more: str) -> int:
    words = ["archive", "--once", "--to", str(archive), "--cluster", "east"]
    return run_command([*words, "--ledger", str(ledger), *more])


def objects(archive: Path) -> dict[str, bytes]:
    found = [path for path in sorted(archive.rglob("*")) if path.is_file()]
    return {str(path.relative_to(archive)): path.read_bytes() for path in found}


def test_a_day_becomes_an_object_for_each_utc_day(
    ledger: Path, archive: Path, capsys: Capsys
) -> None:
    assert run(ledger, archive) == 0
    keys = [object_key.parse(key) for key in objects(archive)]
    found = [key for key in keys if isinstance(key, object_key.RawKey)]
    assert [(key.cluster, key.node, key.day) for key in found] == [
        ("east", "gpu-node-1", date(2027, 1, 15)),
        ("east", "gpu-node-1", date(2027, 1, 16)),
    ]
    assert "rows in 2 objects" in capsys.readouterr().err
    with closing(open_readwrite(ledger, "normal")) as connection:
        expected = ArchiveBacklog(0, DAY_LATER.wall_ns, str(archive))
        assert read_backlog(connection, DAY_LATER.wall_ns) == expected
        assert first_object(connection) is None


def test_a_second_write_writes_nothing(ledger: Path, archive: Path, capsys: Capsys) -> None:
    run(ledger, archive)
    before = objects(archive)
    assert run(ledger, archive) == 0
    assert objects(archive) == before
    assert "nothing new" in capsys.readouterr().err


def test_usage_reports_the_same_before_and_after(ledger: Path, archive: Path) -> None:
    before = window_of(ledger)
    run(ledger, archive)
    assert window_of(ledger) == before


def test_what_cannot_be_written_stays_and_is_written_later(
    ledger: Path, archive: Path, tmp_path: Path, capsys: Capsys
) -> None:
    missing = tmp_path / "missing"
    assert run(ledger, missing) == 2
    error = capsys.readouterr().err
    assert f"there is no folder {missing}" in error
    assert f"The rows stay in {ledger} until they are written" in error
    with closing(open_readwrite(ledger, "normal")) as connection:
        backlog = read_backlog(connection, DAY_LATER.wall_ns)
        assert backlog is not None
        assert backlog.rows > 100
        assert backlog.is_overdue(DAY_LATER.wall_ns)
    assert run(ledger, archive) == 0
    other = write_day(tmp_path / "other.db")
    shutil.copy(ledger, tmp_path / "copy.db")
    assert run(other, archive, "--node", "other") == 0
    of_nodes: dict[str, list[tuple[date, int, int]]] = {}
    for key in map(object_key.parse, objects(archive)):
        assert isinstance(key, object_key.RawKey)
        of_nodes.setdefault(key.node, []).append((key.day, key.first, key.last))
    assert of_nodes["other"] == of_nodes["gpu-node-1"], "as if the first try had not been"


def test_another_location_is_a_warning(
    ledger: Path, archive: Path, tmp_path: Path, capsys: Capsys
) -> None:
    run(ledger, archive)
    capsys.readouterr()
    other = tmp_path / "other"
    other.mkdir()
    run(ledger, other)
    assert f"was written to {archive} before" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--to", "/archive"], "--cluster is missing"),
        (["--cluster", "east"], "--to is missing"),
        (["--to", "/archive", "--cluster", "a/b"], "'a/b' is not a name"),
        (["--to", "/a", "--cluster", "e", "--interval", "10s"], "not between 1m and 24h"),
        (
            ["--to", "/a", "--cluster", "e", "--ledger", "x", "--sink", "y"],
            "--ledger already names the file: remove --sink",
        ),
    ],
)
def test_missing_and_invalid_options(more: list[str], message: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(["archive", "--once", *more])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_ledger_that_does_not_exist_is_not_created(
    tmp_path: Path, archive: Path, capsys: Capsys
) -> None:
    ledger = tmp_path / "missing.db"
    assert run(ledger, archive) == 1
    assert "does not exist" in capsys.readouterr().err
    assert not ledger.exists()


def test_an_older_ledger_is_not_migrated(tmp_path: Path) -> None:
    """The podgpu that writes the ledger may be an older one that still runs."""
    path = tmp_path / "usage.db"
    shutil.copy(OF_VERSION_2, path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="has version 2 of the tables"):
        open_for_sealing(path)
    assert path.read_bytes() == before


def test_two_programs_do_not_write_the_archive_of_one_ledger(
    ledger: Path, archive: Path, capsys: Capsys
) -> None:
    with archive_lock(ledger):
        assert run(ledger, archive) == 1
    error = capsys.readouterr().err
    assert f"its archive is being written by process {os.getpid()}" in error
    assert run(ledger, archive) == 0


KILLED = """
import os, signal, sys
from pathlib import Path
from podgpu.cli.archive import node_write
from tests.podgpu.cli.archive.test_node_write import _Stopped, run
node_write.SystemClock = _Stopped
left = int(sys.argv[3])
def trace(frame, event, argument):
    global left
    if event == "line" and "/pipeline/" in frame.f_code.co_filename:
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace
sys.settrace(trace)
run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.timeout(120)
def test_a_killed_write_is_continued_with_the_same_objects(
    ledger: Path, archive: Path, tmp_path: Path
) -> None:
    """SIGKILL at 4 places from the first statement to the last one."""
    expected = tmp_path / "expected"
    expected.mkdir()
    shutil.copy(ledger, tmp_path / "copy.db")
    assert run(tmp_path / "copy.db", expected) == 0
    killed = 0
    for number in range(4):
        path = tmp_path / f"{number}.db"
        shutil.copy(ledger, path)
        target = archive / str(number)
        target.mkdir()
        lines = 400 + number * 4000
        command = [sys.executable, "-c", KILLED, str(path), str(target), str(lines)]
        ended = subprocess.run(command, check=False, capture_output=True)
        killed += ended.returncode == -signal.SIGKILL
        assert run(path, target) == 0
        assert objects(target) == objects(expected)
    assert killed > 2
