"""The demo's ledger file: where it is, what it replaces, and what happens on errors."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.files.lock_file import locked_by
from pipeline.ledger.file_open import LedgerError
from pipeline.ledger.writer_open import open_readwrite
from podgpu.cli.demo import ledger_place
from podgpu.cli.demo.ledger_file import MAKER, write
from podgpu.cli.demo.ledger_place import (
    DemoLedgerError,
    files_of,
    latest,
    new_file_of,
    place,
    write_in_child,
)
from sinks.ledger.writer_lock import Lock, lock_of
from tests.pipeline.ledger.open_ledger import moved, query, window_of
from tests.podgpu.cli.demo.sample_nodes import GPUS, NODE, NOW
from tests.podgpu.cli.usage.ledgers import write_day

SMALL = replace(NODE, devices=GPUS[:1])
"""The node with one GPU, whose data is written in less time."""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return the folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_the_file_is_in_the_users_folder_for_state(tmp_path: Path, temporary: Path) -> None:
    home, state = str(tmp_path / "home"), str(tmp_path / "state")
    own = f"podgpu-{os.geteuid()}"
    assert (
        place("9400", {"HOME": home, "TMPDIR": str(temporary)})
        == tmp_path / "home/.local/state/podgpu/demo.db"
    )
    env = {"HOME": home, "XDG_STATE_HOME": state}
    assert place("9400", env) == tmp_path / "state/podgpu/demo.db"
    assert place("9500", env) == tmp_path / "state/podgpu/demo-9500.db"
    relative = {"HOME": home, "XDG_STATE_HOME": "state"}
    assert place("9400", relative) == tmp_path / "home/.local/state/podgpu/demo.db"
    assert place("9400", {"TMPDIR": str(temporary)}) == temporary / own / "demo.db"
    assert (temporary / own).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_skipped(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "file").touch()
    env = {"HOME": str(tmp_path / "file"), "TMPDIR": str(temporary)}
    assert place("9400", env).parent == temporary / f"podgpu-{os.geteuid()}"


def _link(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    folder.symlink_to(folder.parent / "other")


def _open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize("prepare", [_link, _open_to_all])
def test_a_temporary_folder_that_others_can_change_is_not_used(
    prepare: Callable[[Path], None], temporary: Path
) -> None:
    prepare(temporary / f"podgpu-{os.geteuid()}")
    with pytest.raises(DemoLedgerError, match="set XDG_STATE_HOME to a folder of your own"):
        place("9400", {"TMPDIR": str(temporary)})
    assert latest({"TMPDIR": str(temporary)}) is None


def test_the_latest_file_is_that_of_the_demo_that_wrote_last(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    assert latest(env) is None
    first, second = place("9400", env), place("9500", env)
    for seconds, path in enumerate((first, second), 1):
        path.touch()
        os.utime(path, (seconds, seconds))
    assert latest(env) == second
    log = first.with_name("demo.db-wal")
    log.touch()
    os.utime(log, (9, 9))
    assert latest(env) == first


def test_the_file_is_marked_as_sample_data(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    write(path, SMALL, NOW)
    window = window_of(path)
    assert (window.sample_data, window.node, window.end_ns) == (MAKER, "demo", NOW.wall_ns)
    assert locked_by(lock_of(path)) is None


def test_a_demo_that_is_started_a_day_later_replaces_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    write(path, SMALL, NOW)
    # As after a kill: the old file has a log, and there is an incomplete new file.
    with closing(open_readwrite(path, "normal")) as connection:
        connection.execute("UPDATE hours SET held_ns = 0")
        logs = {each: each.read_bytes() for each in files_of(path)}
    for each, content in logs.items():
        each.write_bytes(content)
    for each in files_of(path.with_name("demo.db.new")):
        each.write_bytes(b"the start")
    later = moved(NOW, 86_400)
    write(path, SMALL, later)
    assert window_of(path).end_ns == later.wall_ns
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == [
        "demo.db",
        "demo.db.lock",
    ]


@pytest.mark.parametrize("content", ["a ledger", "a text", "a folder"])
def test_a_file_that_is_not_the_demos_is_never_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    if content == "a ledger":
        write_day(path)
    elif content == "a text":
        path.write_text("mine")
    else:
        path.mkdir()
    before = path.stat()
    with pytest.raises(LedgerError, match="move it away: the demo replaces only its own ledger"):
        write(path, SMALL, NOW)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_ledger_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    lock = Lock(path)
    lock.take()
    with pytest.raises(LedgerError, match=rf"is in use by process {os.getpid()}"):
        write(path, SMALL, NOW)
    assert not path.exists()
    lock.release()


@pytest.mark.slow
def test_a_child_writes_the_sample_data_of_the_shipped_recording(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    write_in_child(path)
    window = window_of(path)
    assert window.sample_data == MAKER
    assert window.totals
    assert any("llama-train" in row.container.subject.pod for row in window.usage if row.container)


@pytest.mark.slow
def test_the_reason_of_a_childs_failure_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "demo.db").write_text("mine")
    with pytest.raises(DemoLedgerError) as found:
        write_in_child(tmp_path / "demo.db")
    assert str(found.value).startswith(f"{tmp_path}/demo.db: ")
    with pytest.raises(DemoLedgerError, match=r"none/demo\.db: no such file or directory"):
        write_in_child(tmp_path / "none" / "demo.db")


@pytest.mark.slow
def test_the_child_does_not_import_modules_of_the_present_folder(tmp_path: Path) -> None:
    (tmp_path / "sqlite3.py").write_text("raise SystemExit('of another user')")
    script = (
        "import sys; from pathlib import Path; sys.path.remove('') if '' in sys.path else None\n"
        "from podgpu.cli.demo.ledger_place import write_in_child\n"
        "write_in_child(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-P", "-c", script, str(tmp_path / "demo.db")]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)


WORKS = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"
"""A program that uses the processor for longer than an idle child may wait in these tests."""


def _child(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """Make the child a shell script, which has begun to write; return the ledger's path."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\n: >"$4.new"; : >"$4.new-wal"\n{text}\n')
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(ledger_place, "_NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(ledger_place, "_NOTICES_WITHOUT_PROGRESS", 3)
    return folder / "demo.db"


@pytest.mark.slow
def test_a_slow_child_may_take_its_time_and_the_user_sees_that_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    write_in_child(_child(tmp_path, monkeypatch, WORKS), texts.append)
    assert len(texts) > 3
    assert all("this machine is busy or slow" in each for each in texts)


@pytest.mark.slow
def test_a_child_that_makes_no_progress_is_ended_and_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _child(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(DemoLedgerError, match="makes no progress: check its disk"):
        write_in_child(path)
    assert not any(each.exists() for each in files_of(new_file_of(path)))


@pytest.mark.slow
def test_files_of_an_interrupted_child_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    path = _child(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(KeyboardInterrupt):
        write_in_child(path, interrupt)
    assert not any(each.exists() for each in files_of(new_file_of(path)))


def test_a_failed_write_leaves_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("podgpu.cli.demo.ledger_file.sample_batch", fail)
    with pytest.raises((OSError, LedgerError)):
        write(tmp_path / "demo.db", SMALL, NOW)
    assert [each.name for each in tmp_path.iterdir()] == ["demo.db.lock"]
