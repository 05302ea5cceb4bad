"""Temporary folders: removed at the end, and those of killed processes at the next start."""

import os
import tempfile
from pathlib import Path

import pytest

from pipeline.archive.work_folder import work_folder
from pipeline.base.errors import TransientError

PREFIX = "podgpu-test-"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def left(root: Path, age: float, name: str = f"{PREFIX}killed") -> Path:
    """Make the folder that a killed process left some seconds ago, at the time 1000."""
    folder = root / name
    folder.mkdir(mode=0o700)
    (folder / "file").touch()
    os.utime(folder, (1000 - age, 1000 - age))
    return folder


def test_the_folder_is_removed_at_the_end(root: Path) -> None:
    with work_folder(PREFIX, 1000) as folder:
        assert folder.parent == root
        (folder / "file").touch()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(("age", "removed"), [(59, False), (61, True)])
def test_what_a_killed_process_left_is_removed(root: Path, age: float, *, removed: bool) -> None:
    folder = left(root, age)
    with work_folder(PREFIX, 1000):
        assert folder.exists() is not removed


def test_folders_in_use_and_of_others_stay(root: Path) -> None:
    link, other = root / f"{PREFIX}link", left(root, 100, "other")
    link.symlink_to(other)
    open_to_all = left(root, 100, f"{PREFIX}open")
    open_to_all.chmod(0o755)
    with work_folder(PREFIX, 1000) as used:
        os.utime(used, (0, 0))
        with work_folder(PREFIX, 1000):
            assert used.exists()
    assert (other / "file").exists()
    assert link.is_symlink()
    assert open_to_all.exists()


def test_a_missing_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(TransientError, match="set TMPDIR to a folder"), work_folder(PREFIX, 1000):
        pass
