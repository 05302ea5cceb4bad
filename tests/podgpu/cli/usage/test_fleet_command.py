"""`podgpu usage --from`: the output, the examples in docs/fleet-reports.md, and what is refused."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from importlib import util
from pathlib import Path

import pytest

from podgpu.cli.archive import extra
from tests.podgpu.cli.usage.fleet_example import HOURS, write_example
from tests.podgpu.cli.usage.usage_command import run

PAGE = Path(__file__).resolve().parents[4] / "docs" / "fleet-reports.md"
URL = "s3://gpu-usage"
EXAMPLE = re.compile(r"^```\n\$ podgpu usage ?(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)
MONTH = ("--month", "2027-01")

Capsys = pytest.CaptureFixture[str]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the archive; tests only read it."""
    return write_example(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def location(written: Path, tmp_path: Path) -> Path:
    """Return a copy of the archive, which a test may change."""
    return Path(shutil.copytree(written, tmp_path / "archive"))


def examples() -> list[str]:
    return [found[1] for found in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("words", examples())
def test_an_example_equals_the_output(written: Path, capsys: Capsys, words: str) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the examples again."""
    code, out, _ = run(capsys, *shlex.split(words.replace(URL, str(written))))
    assert code == 0
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = EXAMPLE.sub(
            lambda found: (
                f"```\n$ podgpu usage {words}\n{out}```" if found[1] == words else found[0]
            ),
            page,
        )
        PAGE.write_text(page, encoding="utf-8")
    [shown] = [found[2] for found in EXAMPLE.finditer(page) if found[1] == words]
    assert shown == out


def document(capsys: Capsys, *words: object) -> dict[str, object]:
    code, out, _ = run(capsys, "--format", "json", *words)
    assert code == 0
    found: dict[str, object] = json.loads(out, parse_float=Decimal)
    return found


def test_csv_has_columns_for_cluster_and_node(written: Path, capsys: Capsys) -> None:
    for by, columns in (
        ("pod", ["cluster", "node", "namespace", "pod", "pod_uid"]),
        ("device", ["cluster", "node", "device", "device_name"]),
        ("node", ["cluster", "node"]),
        ("cluster", ["cluster"]),
    ):
        words = ("--from", written, *MONTH, "--by", by, "--format", "csv")
        code, out, _ = run(capsys, *words)
        rows = list(csv.DictReader(io.StringIO(out)))
        assert code == 0
        assert list(rows[0])[1 : len(columns) + 1] == columns
        assert rows[0]["cluster"] in ("east", "west")
        sums = sum(Decimal(row["held_seconds"]) for row in rows[:-1])
        assert sums == Decimal(rows[-1]["held_seconds"])


def test_json_names_clusters_and_nodes(written: Path, capsys: Capsys) -> None:
    found = document(capsys, "--from", written, *MONTH)
    names = ("node", "clusters", "nodes", "gaps", "gap_counts")
    assert [found[name] for name in names] == [None, ["east", "west"], 3, [], {"down": 1}]
    devices = found["devices"]
    assert isinstance(devices, list)
    assert {(one["cluster"], one["node"]) for one in devices} == {
        ("east", "gpu-node-1"), ("east", "gpu-node-2"), ("west", "gpu-node-3")
    }  # fmt: skip
    one = document(capsys, "--from", written, *MONTH, "--cluster", "west")
    assert one["clusters"] == ["west"]


def test_consecutive_days_have_each_hour_once(written: Path, capsys: Capsys) -> None:
    def hours(*words: str) -> Decimal:
        found = document(capsys, "--from", written, "--tz", "Asia/Kolkata", *words)
        devices = found["devices"]
        assert isinstance(devices, list)
        return sum((one["accounted_seconds"] for one in devices), Decimal(0)) / 3600

    days = [hours("--day", f"2027-01-{day}") for day in ("15", "16", "17")]
    down = 2 * Decimal("0.25")
    assert sum(days) == hours(*MONTH) == 3 * 2 * HOURS - down
    assert days[1] == 3 * 2 * 24 - down


def test_a_ledger_file_is_a_location(written: Path, capsys: Capsys) -> None:
    file = written.parent / "gpu-node-1.db"
    found = document(capsys, "--from", file, *MONTH)
    own = document(capsys, "--ledger", file, *MONTH)
    for name in ("rows", "free", "unknown", "unattributed", "total"):
        assert found[name] == own[name]
    assert (found["clusters"], found["nodes"]) == ([], 1)


def test_one_gpu_is_chosen_by_its_uuid(written: Path, capsys: Capsys) -> None:
    words = ("--from", written, *MONTH)
    devices = document(capsys, *words)["devices"]
    assert isinstance(devices, list)
    uuid = devices[0]["device"]
    found = document(capsys, *words, "--device", uuid)
    assert [one["device"] for one in found["devices"]] == [uuid]  # type: ignore[attr-defined]
    listed = document(capsys, *words, "--device", uuid, "--holdings")["holdings"]
    assert {one["device"] for one in listed} == {uuid}  # type: ignore[attr-defined]
    code, _, err = run(capsys, *words, "--device", "1")
    assert code == 2
    assert "give the first characters of the UUID of one GPU" in err


def test_sample_data_is_marked(written: Path, tmp_path: Path, capsys: Capsys) -> None:
    file = Path(shutil.copy(written.parent / "gpu-node-1.db", tmp_path))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('sample_data', 'a test')")
    found = document(capsys, "--from", file, *MONTH)
    assert found["sample_data"] == "a test"
    _, out, _ = run(capsys, "--from", file, *MONTH)
    assert out.startswith("sample data of a test, not measured\n")


def _objects(location: Path) -> list[Path]:
    return sorted((location / "v1").rglob("*.parquet"))


def _cut(location: Path) -> list[Path]:
    path = _objects(location)[0]
    path.write_bytes(path.read_bytes()[:-20])
    return [location]


def _missing(location: Path) -> list[Path]:
    return [location / "missing"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_cut, "restore this object or move it away"),
        (_missing, "there is no folder or file"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    location: Path, capsys: Capsys, break_it: Callable[[Path], list[Path]], message: str
) -> None:
    words = [word for each in break_it(location) for word in ("--from", each)]
    code, out, err = run(capsys, *words, *MONTH)
    assert (code, out) == (2, "")
    assert message in err


def test_an_archive_and_a_ledger_of_it_are_refused(written: Path, capsys: Capsys) -> None:
    file = written.parent / "gpu-node-2.db"
    code, out, err = run(capsys, "--from", written, "--from", file, *MONTH)
    assert (code, out) == (2, "")
    assert f"of node gpu-node-2 is in {written} and in {file}" in err
    assert "give only one of them" in err


def test_a_ledger_file_is_refused_with_a_cluster(written: Path, capsys: Capsys) -> None:
    """Its usage may be that of any cluster."""
    file = written.parent / "gpu-node-2.db"
    code, out, err = run(capsys, "--from", file, *MONTH, "--cluster", "east")
    assert (code, out) == (2, "")
    assert f"{file} is a ledger file, which does not know its cluster" in err


def test_an_empty_location_is_not_the_present_folder(
    written: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written)
    code, out, err = run(capsys, "--from", "", *MONTH)
    assert (code, out) == (2, "")
    assert "there is no folder or file ''" in err


def test_an_object_of_another_program_is_ignored_with_a_note(
    location: Path, capsys: Capsys
) -> None:
    _, before, _ = run(capsys, "--from", location, *MONTH)
    (location / "v1" / "nodes" / "notes.txt").write_text("hello")
    code, out, err = run(capsys, "--from", location, *MONTH)
    assert (code, out) == (0, before)
    assert "notes.txt is no object of an archive, and is ignored" in err


def test_a_node_with_a_part_of_the_time_is_named(location: Path, capsys: Capsys) -> None:
    _, _, err = run(capsys, "--from", location, *MONTH)
    assert err == ""
    [last_day] = (location / "v1/clusters/west/2027-01-17").iterdir()
    last_day.unlink()
    _, _, err = run(capsys, "--from", location, *MONTH)
    assert (
        "1 of 3 nodes has usage for only a part of this time: west/gpu-node-3 (36 of 48 h)" in err
    )
    assert "run podgpu doctor on it" in err


def test_a_span_without_data_is_an_error(written: Path, capsys: Capsys) -> None:
    code, _, err = run(capsys, "--from", written, "--month", "2026-01")
    assert code == 1
    assert f"{written}: no usage from 2026-01-01 00:00 to 2026-02-01 00:00 UTC" in err


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "duckdb" else util)
    code, _, err = run(capsys, "--from", "/anywhere")
    assert code == 2
    assert "podgpu[archive]" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "/a", "--ledger", "/b"), "--ledger and --from exclude each other"),
        (("--cluster", "east"), "--cluster needs --from"),
        (("--by", "node"), "--by node needs --from or --prometheus"),
        (("--by", "user", "--prometheus", "http://h:1"), "--by user needs a ledger or --from"),
        (("--month", "2027-01", "--since", "7d"), "--month is the whole span: remove --since"),
        (("--month", "2027-01", "--day", "2027-01-02"), "--month is the whole span: remove --day"),
        (("--prices", "/p", "--currency", "EUR"), "--prices names a file with all prices"),
        (("--format", "focus"), "--format focus needs --from"),
        (("--from", "/a", "--format", "focus"), "--format focus needs --prices"),
        (("--charge-period", "day"), "--charge-period needs --format focus"),
    ],
)
def test_contradictions_are_refused(capsys: Capsys, words: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
