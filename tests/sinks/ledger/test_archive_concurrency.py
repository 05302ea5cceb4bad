"""A ledger is sealed while a sink writes it: each amount is sealed exactly once."""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.archive_open import open_for_sealing
from pipeline.ledger.outbox import first_object, remove_object
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.sealing import seal
from tests.pipeline.ledger.archive_world import Row, amounts_of, device_sums, valid_items

SECONDS = 6
ROOT = Path(__file__).parents[3]


def taken(path: Path) -> list[Row]:
    """Seal everything, also the current hour, and return the rows."""
    found: list[Row] = []
    with closing(open_for_sealing(path)) as connection:
        while seal(connection, "east", "node-1", time.time_ns() + 3 * HOUR_NS):
            while (pending := first_object(connection)) is not None:
                found += map(dict, pending.rows)
                remove_object(connection, pending)
    return found


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_gains_of_a_sealed_hour_are_late_gains_whatever_runs_at_once(tmp_path: Path) -> None:
    """Commits every 100 ms, and sealings as fast as possible."""
    path = tmp_path / "usage.db"
    until = time.time_ns() + SECONDS * 10**9
    command = [sys.executable, "-m", "tests.sinks.ledger.driver", str(path), str(until)]
    rows: list[Row] = []
    sealings = 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "sampled\n"
        while not path.exists():
            time.sleep(0.01)
        while driver.poll() is None:
            more = taken(path)
            sealings += bool(more)
            rows += more
    assert driver.returncode == 0
    rows += taken(path)
    assert [row["serial"] for row in rows] == list(range(1, len(rows) + 1))
    assert sealings > 10
    with closing(open_for_sealing(path)) as connection:
        hours = connection.execute(
            "SELECT ifnull(c.pod, ''), sum(held_ns), sum(busy_ns), sum(energy_mj) FROM hours AS h "
            "LEFT JOIN containers AS c ON c.id = h.container GROUP BY 1 ORDER BY 1"
        ).fetchall()
        totals = connection.execute(
            "SELECT sum(accounted_ns), sum(gap_ns), sum(busy_ns), sum(energy_mj) FROM device_hours"
        ).fetchall()
        ended = connection.execute(
            "SELECT id, end_ns, held_ns FROM holdings WHERE end_ns IS NOT NULL ORDER BY id"
        ).fetchall()
    sums: dict[str, list[int]] = {}
    for (_, _, who), amounts in amounts_of(rows).items():
        parts = sums.setdefault("" if who is None else who.pod, [0, 0, 0])
        sums[who.pod if who else ""] = [a + (b or 0) for a, b in zip(parts, amounts, strict=True)]
    assert {pod: [held, busy or 0, mj or 0] for pod, held, busy, mj in hours} == sums
    names = ("accounted_ns", "gap_ns", "busy_ns", "energy_mj")
    by_hour = device_sums(rows).values()
    assert totals == [tuple(sum(one.get(name, 0) for one in by_hour) for name in names)]
    valid = valid_items(rows, "holding")
    assert [(key, valid[key]["end_ns"], valid[key]["held_ns"]) for key in sorted(valid)] == ended
    assert len(ended) >= 2
