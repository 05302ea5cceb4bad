"""The ledgers of the simulated fleet (`tests.bench.fleet`) add up and contain what they promise."""

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipeline.ledger.schema import HOUR_NS
from tests.bench.fleet.__main__ import Fleet, write_fleet
from tests.bench.fleet.ledger_files import MAKER, write_ledger
from tests.bench.fleet.node_plan import DAY_NS, FIRST_DAY, plan_node
from tests.pipeline.ledger.open_ledger import assert_adds_up, window_of

SEED = 1
WITH_MIG, WITHOUT_ENERGY, GONE, LATER, REPLACED = 3, 9, 17, 6, 11


def _write(folder: Path, number: int, days: int = 1, step_hours: int = 24) -> list[Path]:
    plan = plan_node(number, days, SEED)
    paths = []
    for span in plan.spans:
        paths.append(folder / f"{plan.name}-{span.number}.db")
        for _, _ in write_ledger(paths[-1], plan, span, SEED, step_hours):
            pass
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("step_hours", [1, 24])
@pytest.mark.parametrize("number", [0, WITH_MIG, WITHOUT_ENERGY])
def test_each_hour_adds_up(tmp_path: Path, number: int, step_hours: int) -> None:
    (path,) = _write(tmp_path, number, 3, step_hours)
    for hour in range(0, 72, 7):
        start = FIRST_DAY * DAY_NS + hour * HOUR_NS
        assert_adds_up(window_of(path, start, start + HOUR_NS))
    whole = window_of(path)
    assert (whole.node, whole.sample_data) == (plan_node(number, 3, SEED).name, MAKER)
    timed = [total for total in whole.totals if total.accounted_ns]
    # Each hour of a device that can be held is accounted for, or in a gap, up to a delayed part.
    for total in timed:
        assert 71 * HOUR_NS < total.accounted_ns + total.gap_ns <= 72 * HOUR_NS
    assert len(timed) == len(plan_node(number, 3, SEED).timed)
    assert all((total.energy_mj is None) == (number == WITHOUT_ENERGY) for total in whole.totals)


@pytest.mark.slow
def test_a_node_has_about_200_pods_a_day_of_30_namespaces(tmp_path: Path) -> None:
    (path,) = _write(tmp_path, 0, 5)
    with closing(sqlite3.connect(path)) as connection:
        pods, namespaces, labels, owners = connection.execute(
            "SELECT count(DISTINCT uid), count(DISTINCT namespace), count(DISTINCT labels), "
            "count(DISTINCT owner_name) FROM containers"
        ).fetchone()
    assert 180 < pods / 5 < 240
    assert namespaces == 30
    assert labels > 50
    assert owners > 100


def test_equal_seeds_write_equal_ledgers(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    one, again = _write(tmp_path, 0)[0], _write(tmp_path / "again", 0)[0]
    dumps = []
    for path in (one, again):
        with closing(sqlite3.connect(path)) as connection:
            dumps.append(list(connection.iterdump()))
    assert dumps[0] == dumps[1]


def test_some_nodes_go_away_come_later_or_lose_their_disk() -> None:
    whole = (FIRST_DAY * DAY_NS, (FIRST_DAY + 30) * DAY_NS)
    spans = {
        number: [(span.start_ns, span.end_ns) for span in plan_node(number, 30, SEED).spans]
        for number in (0, GONE, LATER, REPLACED)
    }
    assert spans[0] == [whole]
    assert spans[GONE][0][0] == whole[0]
    assert spans[GONE][0][1] < whole[1]
    assert spans[LATER][0][0] > whole[0]
    assert len(spans[REPLACED]) == 2
    models = {device.model for number in range(6) for device in plan_node(number, 1, SEED).gpus}
    assert len(models) == 2


@pytest.mark.slow
def test_the_archive_has_the_amounts_of_the_ledgers(tmp_path: Path) -> None:
    fleet = Fleet(nodes=2, days=2, seed=SEED, clusters=2, step_hours=6, out=tmp_path, keep=True)
    rows = write_fleet(fleet)
    assert write_fleet(fleet) == 0, "each node is written once"
    with duckdb.connect() as database:
        archived = database.execute(
            "SELECT cluster, count(*), count(DISTINCT serial), "  # noqa: S608
            "sum(held_ns) FILTER (row = 'usage'), sum(accounted_ns) "
            f"FROM read_parquet('{fleet.location}/v1/nodes/**/*.parquet') GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert sum(count for _, count, *_ in archived) == rows
    for number, (cluster, count, serials, held, accounted) in enumerate(archived):
        assert cluster == f"cluster-{number + 1}"
        assert count == serials
        (path,) = fleet.ledgers.glob(f"gpu-{number:04}-*.db")
        totals = window_of(path).totals
        assert held == accounted == sum(total.accounted_ns for total in totals)
