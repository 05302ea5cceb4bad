"""A year of many holdings, a terminal, and a ledger that is being written meanwhile."""

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
from tests.podgpu.cli.usage.asked import run
from tests.podgpu.cli.usage.ledgers import write_day
from tests.podgpu.cli.usage.years import CARDS, write_year
from tests.support.nodes import START, uuid_of
from tests.support.usage import account, used

ROOT = Path(__file__).resolve().parents[4]
HOLDINGS = 6000
"""tests/bench has 100,000."""

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_year(tmp_path_factory.mktemp("year") / "ledger.db", HOLDINGS)


@pytest.mark.parametrize(
    ("by", "count"), [("namespace", 40), ("pod", HOLDINGS), ("workload", 1000), ("device", CARDS)]
)
def test_a_year_adds_up(year: Path, capsys: Capsys, by: str, count: int) -> None:
    words = ("--since", "all", "--until", "2027-02-01", "--by", by, "--price-kwh", "0.31")
    code, out, err = run(capsys, "--ledger", year, *words, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out, parse_float=Decimal)
    assert found["total"]["holdings"] == HOLDINGS
    assert len(found["rows"]) == count
    assert found["total"]["held_seconds"] == HOLDINGS * 1800
    for name in ("held_seconds", "busy_seconds", "energy_joules", "holdings", "cost"):
        assert sum(row[name] for row in found["rows"]) == found["total"][name]


def test_a_year_of_holdings(year: Path, capsys: Capsys) -> None:
    words = ("--since", "all", "--until", "2027-02-01", "--holdings", "--limit", 3)
    code, out, _ = run(capsys, "--ledger", year, *words)
    assert code == 0
    assert len(out.splitlines()) == 3 + 4


def in_terminal(width: int, *words: object) -> tuple[int, list[str]]:
    """What a terminal of that width is sent."""
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
    said = b""
    try:
        while part := os.read(leader, 65536):
            said += part
    except OSError:  # the other side is closed
        pass
    os.close(leader)
    return program.wait(60), said.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("width", [80, 132, 200])
@pytest.mark.parametrize("words", [("--by", "workload", "--price-kwh", "1"), ("--holdings",)])
def test_a_terminal_has_room_for_each_line(
    written: Path, width: int, words: tuple[str, ...]
) -> None:
    code, lines = in_terminal(
        width, "--ledger", written, "--since", "all", "--until", "2027-02-01", *words
    )
    assert code == 0
    assert any("BUSY" in line for line in lines), lines
    assert any(line.startswith("lab/") for line in lines), lines
    assert max(map(len, lines)) <= width


def test_it_reads_while_it_is_written(tmp_path: Path, capsys: Capsys) -> None:
    """Each answer is of one moment: what it tells adds up, and never becomes less."""
    path = write_day(tmp_path / "ledger.db")
    kept, show = OpenLedger(path, moved(START, 30 * 3600)), Snapshots()
    seen = []
    for hours in range(31, 37):
        at = moved(START, hours * 3600)
        later = moved(START, 30 * 3600)
        ns = (hours - 30) * HOUR_NS
        late = used("late", held=ns // 2, busy=ns // 4, energy=hours, start=later)
        device = account(uuid_of(1), late, start=later, until=at, unheld=ns - ns // 2)
        kept.accumulator.add_snapshot(show(device))
        kept.commit()
        words = ("--since", "all", "--until", "2027-02-01", "--format", "json")
        code, out, _ = run(capsys, "--ledger", path, *words)
        assert code == 0
        found = json.loads(out, parse_float=Decimal)
        total = found["total"]
        assert total["held_seconds"] + total["free_seconds"] == sum(
            each["accounted_seconds"] for each in found["devices"]
        )
        seen.append(found["total"]["held_seconds"])
    kept.close()
    assert seen == sorted(set(seen))
