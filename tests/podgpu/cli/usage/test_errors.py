"""Errors of `podgpu usage`: one line that says what is wrong, where, and how to fix it."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.join import usage_table
from pipeline.model import NS
from sinks.ledger.options import Options as LedgerOptions
from sources.nvml.options import Options as NvmlOptions
from tests.pipeline.ledger.open_ledger import OpenLedger
from tests.podgpu.cli.usage.usage_command import run

Capsys = pytest.CaptureFixture[str]


def config(folder: Path, *sinks: str) -> Path:
    path = folder / "podgpu.yaml"
    lines = "\n".join(f"  {each}" for each in sinks)
    path.write_text(f"sources:\n  gpus: {{kind: nvml}}\nsinks:\n{lines}\n")
    return path


LINES = "lines: {kind: jsonl}"


def ledger_at(path: Path, name: str = "books") -> str:
    return f"{name}: {{kind: ledger, path: {path}}}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "owner"), "--by: write one of namespace, pod, workload, job, user, account,"),
        (("--by", "namespce"), 'label:KEY; did you mean "namespace"? See podgpu usage --help'),
        (("--by", "labl:team"), 'did you mean "label:KEY"?'),
        (("--by", "label:"), "--by: write label:KEY"),
        (("--by", "label:a\x1b[2J"), "--by: write label:KEY"),
        (("--since", "yesterday"), "argument --since: write for example 7d, 12h, 2w"),
        (("--since", "5"), "argument --since: write for example 7d"),
        (("--since", "2027-02-30"), "argument --since: there is no such date"),
        (("--until", "all"), "argument --until: write for example 7d"),
        (
            ("--since", "1h", "--until", "2h"),
            "is not before --until (2027-01-16 05:00 UTC): give an",
        ),
        (("--since", "2028-01-01"), "--since (2028-01-01 00:00 UTC) is not before now"),
        (("--price-kwh", "1,5"), "argument --price-kwh: write a price such as 2.50"),
        (("--price-kwh", "-1"), "--price-kwh"),
        (("--price-gpu-hour", "1e999999999"), "write a price such as 2.50"),
        (
            ("--price-kwh", "1", "--currency", "a\x1b"),
            "write a name of 1 to 12 printable characters",
        ),
        (("--currency", "EUR"), "--currency needs a price: give --price-gpu-hour or --price-kwh"),
        (("--holdings", "--by", "pod"), "--holdings shows no sums: remove --by"),
        (("--holdings", "--price-kwh", "1"), "remove the prices"),
        (("--limit", "5"), "--limit needs --holdings"),
        (("--holdings", "--limit", "0"), "write a number from 1"),
        (("--sink", "books"), "--ledger already names the file: remove --sink"),
        (("-c", "x.yaml"), "--ledger already names the file: remove -c"),
        (("--format", "xml"), "--format"),
    ],
)
def test_invalid_options_end_with_status_2(
    ledger: Path, capsys: Capsys, words: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, "--ledger", ledger, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "\x1b" not in err


def test_a_missing_ledger_is_an_error(tmp_path: Path, capsys: Capsys) -> None:
    code, out, err = run(capsys, "--ledger", tmp_path / "none.db")
    assert (code, out) == (1, "")
    assert err.startswith(f"podgpu: {tmp_path}/none.db: does not exist; ")
    assert len(err.splitlines()) == 1


def no_database(path: Path) -> None:
    path.write_bytes(b"this is no ledger" * 1000)


def other_program_s(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()


def newer(path: Path) -> None:
    OpenLedger(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'tables'")
    connection.close()


def damaged(path: Path) -> None:
    OpenLedger(path).close()
    with path.open("r+b") as file:
        file.seek(63)
        file.write(b"\2")


@pytest.mark.parametrize("until", ["2200-01-01", "2262-04-12", "2300-01-01", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("more", [(), ("--holdings",), ("--format", "json"), ("--format", "csv")])
def test_an_end_far_in_the_future_means_now(
    ledger: Path, capsys: Capsys, until: str, more: tuple[str, ...]
) -> None:
    near = run(capsys, "--ledger", ledger, "--since", "all", *more)
    assert run(capsys, "--ledger", ledger, "--since", "all", "--until", until, *more) == near


@pytest.mark.parametrize(
    "damage",
    ["UPDATE containers SET labels = '{'", "DELETE FROM devices", "UPDATE holdings SET xids = 7"],
)
@pytest.mark.parametrize("more", [(), ("--holdings",)])
def test_inconsistent_rows_cause_at_most_one_line_of_error(
    ledger: Path, tmp_path: Path, capsys: Capsys, damage: str, more: tuple[str, ...]
) -> None:
    path = Path(shutil.copy(ledger, tmp_path))
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    code, _, err = run(capsys, "--ledger", path, "--since", "all", *more)
    assert code in (0, 2)
    assert len(err.splitlines()) == bool(code)


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "message"), [(Path.mkdir, "is a directory"), (pipe, "is not a regular file")]
)
def test_a_path_that_is_no_regular_file_is_an_error(
    tmp_path: Path, capsys: Capsys, make: object, message: str
) -> None:
    make(tmp_path / "x.db")  # type: ignore[operator]
    code, out, err = run(capsys, "--ledger", tmp_path / "x.db")
    assert (code, out) == (1, "")
    assert err == f"podgpu: {tmp_path}/x.db: {message}; give the path of the ledger sink's file\n"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_database, "not a database"),
        (other_program_s, "is another program's database"),
        (newer, "has version 99, but this podgpu supports only versions up to"),
        (damaged, "has the wrong version 2 in its header: the header is damaged"),
    ],
)
def test_a_file_that_is_no_ledger_is_an_error(
    tmp_path: Path, capsys: Capsys, make: object, message: str
) -> None:
    path = tmp_path / "x.db"
    make(path)  # type: ignore[operator]
    code, out, err = run(capsys, "--ledger", path)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith(f"podgpu: {path}: ")
    assert len(err.splitlines()) == 1


def test_control_characters_are_removed_from_the_path_in_an_error(
    tmp_path: Path, capsys: Capsys
) -> None:
    _, _, err = run(capsys, "--ledger", tmp_path / "a\x1b[2Jb")
    assert "\x1b" not in err


def test_a_time_without_data_is_an_error(ledger: Path, capsys: Capsys) -> None:
    code, out, err = run(
        capsys, "--ledger", ledger, "--since", "2020-01-01", "--until", "2020-02-01"
    )
    assert (code, out) == (1, "")
    assert err == (
        f"podgpu: {ledger}: has no data for the time from 2020-01-01 00:00 to 2020-02-01 00:00 "
        "UTC; --since all covers all data\n"
    )


def test_an_empty_ledger_says_when_the_first_figures_come(tmp_path: Path, capsys: Capsys) -> None:
    OpenLedger(tmp_path / "x.db").close()
    for since in ("all", "1h"):
        code, out, err = run(capsys, "--ledger", tmp_path / "x.db", "--since", since)
        assert (code, out) == (1, "")
        assert "has no usage yet; the first figures come within half a minute after podgpu's" in err
        assert "check that podgpu runs, and that its nvml source works and takes" in err


def test_the_first_figures_come_within_half_a_minute_by_default(tmp_path: Path) -> None:
    """Two samples after the wait for the other sources, and a commit."""
    samples = 2 * NvmlOptions().usage_interval.ns
    commit = LedgerOptions(path=tmp_path / "x.db").commit_interval.ns
    assert usage_table._STARTUP_WAIT_NS + samples + commit <= 30 * NS


def test_an_end_before_all_data_is_an_error(ledger: Path, capsys: Capsys) -> None:
    code, _, err = run(capsys, "--ledger", ledger, "--since", "all", "--until", "2020-02-01")
    assert (code, err.split("; ")[-1]) == (1, "give a later --until\n")


def test_the_ledger_is_found_in_the_configuration(
    ledger: Path, tmp_path: Path, capsys: Capsys
) -> None:
    path = config(tmp_path, LINES, ledger_at(ledger), ledger_at(tmp_path / "none.db", "other"))
    assert run(capsys, "-c", path)[0] == 0
    assert run(capsys, "-c", path, "--sink", "books")[0] == 0
    code, _, err = run(capsys, "-c", path, "--sink", "other")
    assert (code, f"{tmp_path}/none.db: does not exist" in err) == (1, True)


@pytest.mark.parametrize(
    ("sinks", "words", "message"),
    [
        ((LINES,), (), "sinks: has no ledger; add a sink of kind ledger, or give the file as"),
        ((LINES,), ("--sink", "lines"), "has no ledger with the name given by --sink; add a sink"),
        (
            ("books: {kind: ledger, path: /x/y.db}",),
            ("--sink", "book"),
            "has no ledger with the name given by --sink; its ledgers are: books; did you mean",
        ),
    ],
)
def test_a_configuration_without_a_matching_ledger_is_an_error(
    tmp_path: Path, capsys: Capsys, sinks: tuple[str, ...], words: tuple[str, ...], message: str
) -> None:
    path = config(tmp_path, *sinks)
    code, out, err = run(capsys, "-c", path, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}: ")
    assert message in err


def test_an_invalid_configuration_is_an_error(tmp_path: Path, capsys: Capsys) -> None:
    path = config(tmp_path, "books: {kind: ledger, pth: /x}")
    code, _, err = run(capsys, "-c", path)
    assert code == 2
    assert "pth" in err


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_a_report_that_cannot_be_written_ends_with_status_3(written: Path, closed: str) -> None:
    """Status 3 differs from that of missing data and of wrong options."""
    words = f'"$0" -m podgpu usage --ledger "$1" --since all --until 2027-02-01 {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", words, sys.executable, str(written)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[4])},
    )
    assert done.returncode == 3
    assert "podgpu usage: the report can't be written" in done.stderr
