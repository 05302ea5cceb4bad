"""A ledger of a year with many holdings, a terminal, and a ledger that is written meanwhile."""

import json
import os
import pty
import struct
import subprocess
import sys
import termios
from decimal import Decimal
from fcntl import ioctl
from pathlib import Path

import pytest

from pipeline.ledger.schema import HOUR_NS
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, moved
from tests.podgpu.cli.usage.ledgers import write_day
from tests.podgpu.cli.usage.usage_command import run
from tests.podgpu.cli.usage.years import GPUS, write_year
from tests.support.nodes import START, uuid_of
from tests.support.usage import account, used

ROOT = Path(__file__).resolve().parents[4]
HOLDINGS = 2000
"""The benchmark in tests/bench has 100,000."""

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_year(tmp_path_factory.mktemp("year") / "ledger.db", HOLDINGS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "count"), [("namespace", 40), ("pod", HOLDINGS), ("workload", 1000), ("device", GPUS)]
)
def test_the_rows_of_a_year_sum_to_the_total(
    year: Path, capsys: Capsys, by: str, count: int
) -> None:
    words = ("--since", "all", "--until", "2027-02-01", "--by", by, "--price-kwh", "0.31")
    code, out, err = run(capsys, "--ledger", year, *words, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out, parse_float=Decimal)
    assert found["total"]["holdings"] == HOLDINGS
    assert len(found["rows"]) == count
    assert found["total"]["held_seconds"] == HOLDINGS * 1800
    for name in ("held_seconds", "busy_seconds", "energy_joules", "holdings", "cost"):
        assert sum(row[name] for row in found["rows"]) == found["total"][name]


@pytest.mark.slow
def test_a_limited_list_of_the_holdings_of_a_year(year: Path, capsys: Capsys) -> None:
    words = ("--since", "all", "--until", "2027-02-01", "--holdings", "--limit", 3)
    code, out, _ = run(capsys, "--ledger", year, *words)
    assert code == 0
    assert len(out.splitlines()) == 3 + 4


def in_terminal(width: int, *words: object) -> tuple[int, list[str]]:
    """Run the command in a terminal of a width; return its status and the lines it prints."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    program = subprocess.Popen(
        [sys.executable, "-m", "podgpu", "usage", *map(str, words)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=env | {"PYTHONPATH": str(ROOT)},
    )
    os.close(follower)
    output = b""
    try:
        while part := os.read(leader, 65536):
            output += part
    except OSError:  # the other side is closed
        pass
    os.close(leader)
    return program.wait(60), output.decode().replace("\r\n", "\n").splitlines()


# `test_a_report_fits_its_width_with_any_names` has more widths, without a terminal.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "words"),
    [
        (80, ("--by", "workload", "--price-kwh", "1")),
        (80, ("--holdings",)),
        (132, ("--holdings",)),
        (200, ("--by", "workload", "--price-kwh", "1")),
    ],
)
def test_each_line_fits_the_width_of_the_terminal(
    written: Path, width: int, words: tuple[str, ...]
) -> None:
    code, lines = in_terminal(
        width, "--ledger", written, "--since", "all", "--until", "2027-02-01", *words
    )
    assert code == 0
    assert any("BUSY" in line for line in lines), lines
    assert any(line.startswith("lab/") for line in lines), lines
    assert max(map(len, lines)) <= width


def test_reports_are_consistent_while_the_ledger_is_written(tmp_path: Path, capsys: Capsys) -> None:
    """Each report is consistent: its parts sum to its total, which never decreases."""
    path = write_day(tmp_path / "ledger.db")
    ledger, snapshots = OpenLedger(path, moved(START, 30 * 3600)), Snapshots()
    held_seconds = []
    for hours in range(31, 37):
        at = moved(START, hours * 3600)
        later = moved(START, 30 * 3600)
        ns = (hours - 30) * HOUR_NS
        late = used("late", held=ns // 2, busy=ns // 4, energy=hours, start=later)
        device = account(uuid_of(1), late, start=later, until=at, unheld=ns - ns // 2)
        ledger.accumulator.add_snapshot(snapshots(device))
        ledger.commit()
        words = ("--since", "all", "--until", "2027-02-01", "--format", "json")
        code, out, _ = run(capsys, "--ledger", path, *words)
        assert code == 0
        found = json.loads(out, parse_float=Decimal)
        total = found["total"]
        assert total["held_seconds"] + total["free_seconds"] == sum(
            each["accounted_seconds"] for each in found["devices"]
        )
        held_seconds.append(found["total"]["held_seconds"])
    ledger.close()
    assert held_seconds == sorted(set(held_seconds))
