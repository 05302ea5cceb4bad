"""A report of a year with 100,000 holdings, compared with reading its rows from the file."""

import io
import time
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from pathlib import Path

import pytest

from pipeline.ledger.file_open import open_readonly
from podgpu.cli.commands import run_command
from tests.podgpu.cli.usage.years import write_year

HOLDINGS = 100_000
UNTIL = "2027-02-01"


def took(work: Callable[[], object]) -> float:
    """Return the seconds of processor time, because other programs use the machine too."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rows(path: Path) -> int:
    with closing(open_readonly(path)) as connection:
        return len(connection.execute("SELECT * FROM hours").fetchall())


def report(path: Path, *words: str) -> None:
    with redirect_stdout(io.StringIO()):
        code = run_command(
            ["usage", "--ledger", str(path), "--since", "all", "--until", UNTIL, *words]
        )
    assert code == 0


@pytest.mark.timeout(300)
def test_reports_of_a_year_of_holdings(tmp_path: Path) -> None:
    path = write_year(tmp_path / "ledger.db", HOLDINGS)
    size = path.stat().st_size
    read = min(took(lambda: rows(path)) for _ in range(3))
    print(
        f"\na year of {HOLDINGS} holdings: {size / 1e6:.0f} MB; its rows are read in {read:.2f} s"
    )
    for words in (("--by", "namespace"), ("--by", "workload"), ("--by", "pod"), ("--holdings",)):
        spent = took(lambda words=words: report(path, *words))  # type: ignore[misc]
        print(f"podgpu usage {' '.join(words)}: {spent:.2f} s, {spent / read:.0f} times that")
        assert spent < 60
