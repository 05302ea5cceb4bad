"""Measure the compaction and the reports of the simulated fleet, for `docs/sizing.md`.

python -m tests.bench.fleet --nodes 1000 --days 1 --step-hours 1 --out DAY
python -m tests.bench.fleet --nodes 100 --days 30 --copies 10 --out MONTH
python -m tests.bench.fleet.figures --raw-day DAY/archive --month MONTH/copied
"""

import argparse
import csv
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import duckdb

from tests.docs.pages import DOCS, blocks

_FIRST: Final = "2026-06-01"
_SPANS: Final = {"a day": "2026-06-02", "30 days": "2026-07-01"}


@dataclass(frozen=True, slots=True)
class Run:
    """A finished command.

    Attributes:
        output: what it wrote.
        seconds: its duration.
        processor_seconds: processor time of the process and its children.
        megabytes: the largest resident memory of one process.
    """

    output: str
    seconds: float
    processor_seconds: float
    megabytes: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.processor_seconds:.1f} s CPU, {self.megabytes:.0f} MB"


def run(*words: str) -> Run:
    """Run a command of podgpu; return its output, duration and memory."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "podgpu", *words], stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started
        output.seek(0)
        text = output.read().decode()
    if process.returncode:
        raise SystemExit(f"podgpu {' '.join(words)} failed: {text}")
    return Run(text, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)


def print_size(location: Path) -> None:
    """Print the number of objects of an archive and their size."""
    for name in ("nodes", "clusters"):
        sizes = [path.stat().st_size for path in (location / "v1" / name).rglob("*.parquet")]
        print(f"  {name}: {len(sizes)} objects, {sum(sizes) / 1e6:.1f} MB")


def print_reports(location: Path, until: str) -> None:
    """Print the time and memory of reports, and compare the first with DuckDB's SQL."""
    span = ["--from", str(location), "--since", _FIRST, "--until", until, "--format", "csv"]
    for by in ("namespace", "label:team", "workload", "pod"):
        report = run("usage", *span, "--by", by)
        print(f"  podgpu usage --by {by}: {report}", flush=True)
        if by == "namespace":
            difference = compared(location, until, report.output)
            print(f"  {difference} amounts differ from the SQL of docs/archive-sql.md")


def compared(location: Path, until: str, report: str) -> int:
    """Return how many amounts of a report by namespace differ from those of the page's SQL."""
    view, query, *_ = blocks(DOCS / "archive-sql.md", "sql")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        database.execute(f"SET memory_limit = '1GB'; SET temp_directory = '{folder}'")
        database.execute(view.replace("LOCATION", str(location)))
        rows = database.execute(query.replace("2026-07-01", until)).fetchall()
    print(f"  the SQL in DuckDB: {time.monotonic() - started:.1f} s")
    ours = {
        (row["namespace"], name, Decimal(row[name]) * scale)
        for row in csv.DictReader(io.StringIO(report))
        if row["row"] == "group"
        for name, scale in (
            ("held_seconds", 10**9),
            ("busy_seconds", 10**9),
            ("energy_joules", 1000),
        )
    }
    names = ("held_seconds", "busy_seconds", "energy_joules")
    theirs = {
        (namespace, name, amount)
        for namespace, *amounts, _ in rows
        for name, amount in zip(names, amounts, strict=True)
    }
    assert len(theirs) == 3 * len(rows) > 0
    return len(ours ^ theirs)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fleet.figures", description=__doc__
    )
    parser.add_argument("--raw-day", type=Path, help="an archive of one day; it is compacted")
    parser.add_argument("--month", type=Path, help="a compacted archive of 30 days")
    given = parser.parse_args(words)
    if given.raw_day:
        print("a day, as the nodes write it")
        print_size(given.raw_day)
        print_reports(given.raw_day, _SPANS["a day"])
        print(f"  podgpu archive compact: {run('archive', 'compact', str(given.raw_day))}")
        print("the same day, compacted")
        print_size(given.raw_day)
        print_reports(given.raw_day, _SPANS["a day"])
    if given.month:
        print("30 days, compacted")
        print_size(given.month)
        print_reports(given.month, _SPANS["30 days"])


if __name__ == "__main__":
    main()
