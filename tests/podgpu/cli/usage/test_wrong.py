"""What goes wrong with `podgpu usage`: one line that says what, where, and what mends it."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.ledger.open_ledger import OpenLedger
from tests.podgpu.cli.usage.asked import run

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
    ("words", "said"),
    [
        (("--by", "owner"), "--by: write one of namespace, pod, workload, device, label:KEY"),
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
        (("--price-kwh", "1", "--currency", "a\x1b"), "write a name of at most 12 characters"),
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
def test_what_makes_no_sense(
    ledger: Path, capsys: Capsys, words: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capsys, "--ledger", ledger, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert "\x1b" not in err


def test_no_file(tmp_path: Path, capsys: Capsys) -> None:
    code, out, err = run(capsys, "--ledger", tmp_path / "none.db")
    assert (code, out) == (1, "")
    assert err.startswith(f"podgpu: {tmp_path}/none.db: does not exist; ")
    assert len(err.splitlines()) == 1


def broken(path: Path) -> None:
    path.write_bytes(b"this is no ledger" * 1000)


def others(path: Path) -> None:
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE t (x)")
    made.close()


def newer(path: Path) -> None:
    OpenLedger(path).close()
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA user_version = 99")
        made.execute("UPDATE meta SET value = '99' WHERE key = 'tables'")
    made.close()


def damaged(path: Path) -> None:
    OpenLedger(path).close()
    with path.open("r+b") as file:
        file.seek(63)
        file.write(b"\3")


@pytest.mark.parametrize("until", ["2200-01-01", "2262-04-12", "2300-01-01", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("more", [(), ("--holdings",), ("--format", "json"), ("--format", "csv")])
def test_an_end_that_is_far_away(
    ledger: Path, capsys: Capsys, until: str, more: tuple[str, ...]
) -> None:
    near = run(capsys, "--ledger", ledger, "--since", "all", *more)
    assert run(capsys, "--ledger", ledger, "--since", "all", "--until", until, *more) == near


@pytest.mark.parametrize(
    "spoil",
    ["UPDATE containers SET labels = '{'", "DELETE FROM devices", "UPDATE holdings SET xids = 7"],
)
@pytest.mark.parametrize("more", [(), ("--holdings",)])
def test_one_that_makes_no_sense_inside(
    ledger: Path, tmp_path: Path, capsys: Capsys, spoil: str, more: tuple[str, ...]
) -> None:
    path = Path(shutil.copy(ledger, tmp_path))
    with sqlite3.connect(path) as made:
        made.execute(spoil)
    made.close()
    code, _, err = run(capsys, "--ledger", path, "--since", "all", *more)
    assert code in (0, 2)
    assert len(err.splitlines()) == bool(code)


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "said"), [(Path.mkdir, "is a directory"), (pipe, "is not a regular file")]
)
def test_what_is_no_file(tmp_path: Path, capsys: Capsys, make: object, said: str) -> None:
    make(tmp_path / "x.db")  # type: ignore[operator]
    code, out, err = run(capsys, "--ledger", tmp_path / "x.db")
    assert (code, out) == (1, "")
    assert err == f"podgpu: {tmp_path}/x.db: {said}; give the path of the ledger sink's file\n"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (broken, "not a database"),
        (others, "is another program's database"),
        (newer, "has version 99, but this podgpu supports only versions up to"),
        (damaged, "has the wrong version 3 in its header: the header is damaged"),
    ],
)
def test_what_is_no_ledger(tmp_path: Path, capsys: Capsys, make: object, said: str) -> None:
    path = tmp_path / "x.db"
    make(path)  # type: ignore[operator]
    code, out, err = run(capsys, "--ledger", path)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith(f"podgpu: {path}: ")
    assert len(err.splitlines()) == 1


def test_a_name_that_a_terminal_would_act_on(tmp_path: Path, capsys: Capsys) -> None:
    _, _, err = run(capsys, "--ledger", tmp_path / "a\x1b[2Jb")
    assert "\x1b" not in err


def test_a_span_of_which_nothing_is_reported(ledger: Path, capsys: Capsys) -> None:
    code, out, err = run(
        capsys, "--ledger", ledger, "--since", "2020-01-01", "--until", "2020-02-01"
    )
    assert (code, out) == (1, "")
    assert err == (
        f"podgpu: {ledger}: has no data for the time from 2020-01-01 00:00 to 2020-02-01 00:00 "
        "UTC; --since all covers all data\n"
    )


def test_a_ledger_in_which_nothing_stands_yet(tmp_path: Path, capsys: Capsys) -> None:
    OpenLedger(tmp_path / "x.db").close()
    for since in ("all", "1h"):
        code, _, err = run(capsys, "--ledger", tmp_path / "x.db", "--since", since)
        assert code == 1
        assert "has no usage data yet; check that the nvml source takes usage samples" in err


def test_a_time_before_all_that_is_reported(ledger: Path, capsys: Capsys) -> None:
    code, _, err = run(capsys, "--ledger", ledger, "--since", "all", "--until", "2020-02-01")
    assert (code, err.split("; ")[-1]) == (1, "give a later --until\n")


def test_the_ledger_of_a_configuration(ledger: Path, tmp_path: Path, capsys: Capsys) -> None:
    path = config(tmp_path, LINES, ledger_at(ledger), ledger_at(tmp_path / "none.db", "other"))
    assert run(capsys, "-c", path)[0] == 0
    assert run(capsys, "-c", path, "--sink", "books")[0] == 0
    code, _, err = run(capsys, "-c", path, "--sink", "other")
    assert (code, f"{tmp_path}/none.db: does not exist" in err) == (1, True)


@pytest.mark.parametrize(
    ("sinks", "words", "said"),
    [
        ((LINES,), (), "sinks: has no ledger; add a sink of kind ledger, or give the file as"),
        ((LINES,), ("--sink", "lines"), "has no ledger with the name given by --sink; add a sink"),
        (
            ("books: {kind: ledger, path: /x/y.db}",),
            ("--sink", "book"),
            "has no ledger with the name given by --sink; its ledgers are: books",
        ),
    ],
)
def test_a_configuration_without_such_a_ledger(
    tmp_path: Path, capsys: Capsys, sinks: tuple[str, ...], words: tuple[str, ...], said: str
) -> None:
    path = config(tmp_path, *sinks)
    code, out, err = run(capsys, "-c", path, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}: ")
    assert said in err


def test_a_configuration_that_is_wrong(tmp_path: Path, capsys: Capsys) -> None:
    path = config(tmp_path, "books: {kind: ledger, pth: /x}")
    code, _, err = run(capsys, "-c", path)
    assert code == 2
    assert "pth" in err


@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_what_can_t_be_written(written: Path, closed: str) -> None:
    """Status 3: it is neither that nothing is known, nor that the question is wrong."""
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
