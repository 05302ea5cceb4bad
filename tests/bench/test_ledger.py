"""Usage of a year: queries of the ledger, compared with scanning the same data as JSON lines.

Eight GPUs, 100,000 holdings with a mean of five hours, and their hourly sums; commits of 56 MIG
instances with 200 containers.
"""

import json
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_window
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, assert_adds_up
from tests.support.nodes import START, at, gpu, mig
from tests.support.usage import account, holding, used

GPUS = 8
HOLDINGS = 100_000
YEAR = 8760
END = START.wall_ns // HOUR_NS + YEAR


def year(path: Path, lines: Path) -> None:
    """Write a ledger of a year, and a file of JSON lines with the same hourly sums."""
    OpenLedger(path).close()
    chance, first = random.Random(7), START.wall_ns // HOUR_NS
    hours: dict[tuple[int, int, int], int] = {}
    holdings = []
    for number in range(1, HOLDINGS + 1):
        device, begin = number % GPUS + 1, first + chance.randrange(YEAR - 12)
        length = chance.randrange(1, 10)
        start = begin * HOUR_NS + chance.randrange(HOUR_NS)
        row = (device, number, start, start + length * HOUR_NS, start + length * HOUR_NS)
        holdings.append((*row, "runtime", "runtime_cdi", length * HOUR_NS, 0, HOUR_NS, 7, 9))
        for hour in range(begin, begin + length + 1):
            hours[hour, device, number] = chance.randrange(HOUR_NS // 100)
    for hour in range(first, END):
        for device in range(1, GPUS + 1):
            hours[hour, device, 0] = HOUR_NS // 10
    with closing(sqlite3.connect(path)) as connection, connection:
        run = connection.executemany
        run("INSERT INTO devices VALUES (?, ?, 'H100', '', '')",
            [(one, f"GPU-{one}") for one in range(1, GPUS + 1)])  # fmt: skip
        run("INSERT INTO containers VALUES (?, ?, ?, 'main', ?, 'Job', 'train', ?, 0)",
            [(n, f"team-{n % 20}", f"pod-{n}", f"u-{n}", json.dumps({"team": str(n % 50)}))
             for n in range(1, HOLDINGS + 1)])  # fmt: skip
        run("INSERT INTO holdings "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1, 1, 1, '{}', 0, 0)",
            [(f"h-{number}", *row) for number, row in enumerate(holdings)])  # fmt: skip
        run("INSERT INTO hours VALUES (?, ?, ?, ?, ?, ?, 0, 0)",
            sorted((*key, had, had // 2, had // 10**7) for key, had in hours.items()))  # fmt: skip
        connection.execute(
            "INSERT INTO device_hours SELECT hour, device, sum(held_ns), 0, sum(busy_ns), "
            "sum(energy_mj), 0 FROM hours GROUP BY hour, device"
        )
    with lines.open("w", encoding="utf-8") as file:
        for (hour, device, number), held in hours.items():
            record = {
                "hour": hour,
                "device": f"GPU-{device}",
                "pod": f"pod-{number}",
                "held": held,
            }
            file.write(json.dumps(record) + "\n")


def scan(lines: Path, first: int) -> int:
    """Sum a window of JSON lines; return the number of sums."""
    sums: dict[tuple[str, str], int] = {}
    with lines.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record["hour"] >= first:
                key = record["device"], record["pod"]
                sums[key] = sums.get(key, 0) + record["held"]
    return len(sums)


def best(of: Callable[[], object], times: int = 3) -> float:
    """Return the milliseconds of the fastest of some calls."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        of()
        found.append(time.perf_counter() - started)
    return min(found) * 1000


@pytest.mark.timeout(300)
def test_a_query_of_a_year_is_faster_than_a_scan_of_json_lines(tmp_path: Path) -> None:
    path, lines = tmp_path / "usage.db", tmp_path / "hours.jsonl"
    year(path, lines)
    print(
        f"\na year: ledger {path.stat().st_size >> 20} MiB, lines {lines.stat().st_size >> 20} MiB"
    )
    with closing(open_readonly(path)) as connection:
        # A year has as many sums as holdings: a scan of the same lines is no slower.
        for days, times in ((7, 15.0), (30, 4.0), (365, 0.33)):
            start = (END - days * 24) * HOUR_NS
            window = read_window(connection, start, END * HOUR_NS)
            assert_adds_up(window) if days == 7 else None
            queried = best(lambda start=start: read_window(connection, start, END * HOUR_NS))  # type: ignore[misc]
            scanned = best(lambda first=END - days * 24: scan(lines, first), 1)  # type: ignore[misc]
            text = f"{days} days, {len(window.usage)} sums: queried in {queried:.0f} ms, "
            print(f"{text}scanned in {scanned:.0f} ms, {scanned / queried:.1f} times as long")
            assert scanned > times * queried


def test_a_commit_of_a_node_with_mig_instances_against_an_empty_one(tmp_path: Path) -> None:
    """Compare with an empty commit."""
    instances = [mig(gpu(index), gi) for index in range(8) for gi in range(1, 8)]
    kept, shown = OpenLedger(tmp_path / "usage.db"), Snapshots.of(*instances)
    adding, writing, empty = [], [], []
    for step in range(1, 31):
        until = at(5 * step)
        devices = []
        for place, device in enumerate(instances):
            had = [
                used(
                    f"p{number}",
                    held=step * NS,
                    busy=step,
                    energy=step,
                    holding=holding(f"p{number}", device, until=until, held=step * NS),
                )
                for number in range(place, 200, len(instances))
            ]
            rest = (5 * step - len(had) * step) * NS
            devices.append(account(device, *had, until=until, unheld=rest))
        snapshot = shown(*devices)
        adding.append(best(lambda snapshot=snapshot: kept.accumulator.add_snapshot(snapshot), 1))  # type: ignore[misc]
        writing.append(best(kept.commit, 1))
        empty.append(best(kept.commit, 1))
    took, wrote, nothing = (sorted(each)[15] for each in (adding, writing, empty))
    print(f"\n56 devices, 200 containers: added in {took:.1f} ms, written in {wrote:.1f} ms, ")
    print(f"an empty commit {nothing:.2f} ms: {wrote / nothing:.0f} times as long")
    assert_adds_up(kept.window())
    assert took < wrote, "the event loop has the smaller part"
    kept.close()
