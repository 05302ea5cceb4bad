"""`podgpu archive compact`: what it prints, and its exit status."""

import sys
from argparse import Namespace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from config.value_types import ByteSize, Duration
from pipeline.archive.database import open_database
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from pipeline.base.errors import PermanentError
from podgpu.cli.archive.compact import closed_days, compact
from tests.pipeline.archive.rows import usage_row


def put(folder: Path, *serials: int, **values: str | int) -> str:
    """Write rows to the archive in a folder, and return the key."""
    rows = [usage_row(serial, **values) for serial in serials]
    with open_database(folder.parent) as database:
        return str(put_rows(ObjectStore(str(folder)), database, rows, folder.parent))


def run(location: object, **options: object) -> int:
    """Run the command with its defaults, and return the exit status."""
    defaults = {
        "cluster": [],
        "older_than": Duration.parse("3h"),
        "memory": ByteSize.parse("256MiB"),
    }
    return compact(Namespace(location=str(location), **(defaults | options)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an empty archive."""
    path = tmp_path / "archive"
    path.mkdir()
    return path


@pytest.mark.slow
def test_it_names_each_day_and_the_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, 1, 2, day="2026-01-01")
    put(folder, 3, day="2026-01-01")
    assert run(folder) == 0
    (key,) = ObjectStore(str(folder)).keys("v1")
    expected = f"prod 2026-01-01: merged 2 objects, deleted 2; 3 rows are in {key}\n"
    assert capsys.readouterr() == (expected, "")
    assert run(folder) == 0
    assert capsys.readouterr() == ("nothing to compact\n", "")


@pytest.mark.slow
def test_it_deletes_what_came_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        put(folder, 1, 2, day="2026-01-01")
        assert run(folder) == 0
    assert "nothing to merge, deleted 1; 2 rows" in capsys.readouterr().out


@pytest.mark.slow
def test_a_refused_day_is_named_and_others_are_compacted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = put(folder, 1, 2, day="2026-01-01")
    second = put(folder, 2, day="2026-01-01", held_ns=1)
    put(folder, 3, day="2026-01-02")
    assert run(folder) == 1
    out, err = capsys.readouterr()
    assert out.startswith("prod 2026-01-02: merged 1 objects")
    assert err.startswith("podgpu: prod 2026-01-01 is not compacted: ")
    assert first in err
    assert second in err


def test_only_the_clusters_that_are_asked_for(folder: Path) -> None:
    put(folder, 1, day="2026-01-01")
    other = put(folder, 1, day="2026-01-01", cluster="other")
    assert run(folder, cluster=["prod"]) == 0
    assert list(ObjectStore(str(folder)).keys("v1/nodes")) == [other]


def test_foreign_objects_are_named_and_stay(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, 1, day="2026-01-01")
    foreign = folder / "v1" / "nodes" / "notes.txt"
    foreign.write_text("x")
    assert run(folder) == 0
    assert "1 objects are not podgpu's and are ignored, such as v1/nodes/notes.txt" in (
        capsys.readouterr().err
    )
    assert foreign.exists()


@pytest.mark.parametrize(
    ("now", "older_than", "closed"),
    [
        ("2026-12-01T03:00", "3h", True),
        ("2026-12-01T02:59", "3h", False),
        ("2026-12-01T01:00", "1h", True),
        ("2026-11-30T23:00", "1h", False),
        ("2026-12-31T00:00", "30d", True),
        ("2026-12-30T23:59", "30d", False),
    ],
)
def test_a_day_is_closed_some_time_after_its_end(now: str, older_than: str, closed: bool) -> None:
    now_ns = int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()) * 10**9
    assert closed_days(now_ns, Duration.parse(older_than))(date(2026, 11, 30)) is closed


def test_a_missing_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podgpu.cli.archive.extra._PACKAGES", ("duckdb", "no_such_package"))
    with pytest.raises(
        PermanentError, match=r"needs no_such_package, of podgpu\[archive\]: .*'\.\[archive\]'"
    ):
        run(folder)


@pytest.mark.slow
def test_the_options_are_parsed_without_the_libraries() -> None:
    import subprocess

    code = (
        "import sys; from podgpu.cli.commands import command_parser; command_parser();"
        "sys.exit('duckdb' in sys.modules or 'obstore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
