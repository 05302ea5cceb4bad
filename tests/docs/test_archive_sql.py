"""The SQL of `docs/archive-sql.md` gives the amounts that `podgpu usage --from` reports."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
import sqlglot

from pipeline.archive.row_columns import COLUMNS
from podgpu.cli.commands import run_command
from tests.bench.fleet.archive_objects import write_node
from tests.bench.fleet.node_plan import plan_node
from tests.docs.pages import DOCS, blocks, text_of

PAGE: Final = DOCS / "archive-sql.md"
VIEW, *REST = blocks(PAGE, "sql")
QUERIES: Final = [block for block in REST if not block.startswith("--")]
TABLES: Final = {
    re.match(r"-- (\w+)", block)[1].lower(): block  # type: ignore[index]
    for block in REST
    if block.startswith("--")
}
ENGINES: Final = ("trino", "spark", "clickhouse", "bigquery")
NAMESPACES, TEAMS, IDLE, FREE, LONG, XIDS = QUERIES
DAYS: Final = 2
NODES: Final = (0, 3, 9, 11)
"""A usual node, one with MIG instances, one without energy, and one with two ledgers."""


def replacements() -> dict[str, dict[str, str]]:
    """Return the texts of the page's table by engine: what to write for a text of DuckDB."""
    (table,) = re.findall(r"^\| in the queries .*\n\|[-|]+\n((?:\|.*\n)+)", text_of(PAGE), re.M)
    found: dict[str, dict[str, str]] = {engine: {} for engine in ENGINES}
    for line in table.splitlines():
        ours, *others = (cell.strip().strip("`") for cell in line.split("|")[1:-1])
        for engine, text in zip(ENGINES, others, strict=True):
            found[engine][ours] = ours if text == "the same" else text
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_each_query_follows_the_grammar_of_the_engine(engine: str) -> None:
    for query in QUERIES:
        text = query
        for ours, other in replacements()[engine].items():
            text = text.replace(ours, other)
        (parsed,) = sqlglot.parse(text, read=engine)
        assert isinstance(parsed, sqlglot.exp.Select)


def test_each_replaced_text_is_in_a_query() -> None:
    for ours in replacements()["trino"]:
        assert any(ours in query for query in QUERIES), ours


def test_the_table_for_trino_has_the_columns_of_the_format() -> None:
    (parsed,) = sqlglot.parse(TABLES["trino"], read="trino")
    assert isinstance(parsed, sqlglot.exp.Create)
    columns = {
        one.name: one.args["kind"].sql("duckdb") for one in parsed.find_all(sqlglot.exp.ColumnDef)
    }
    names = {"VARCHAR": "TEXT", "INTEGER": "INT", "TIMESTAMPTZ": "TIMESTAMP(3)"}
    assert columns == {column.name: names.get(column.type, column.type) for column in COLUMNS}


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of two days. The first is compacted, and a part of it is there twice."""
    folder = tmp_path_factory.mktemp("fleet")
    archive, ledgers = folder / "archive", folder / "ledgers"
    archive.mkdir()
    ledgers.mkdir()
    for number in NODES:
        write_node(plan_node(number, DAYS, 1, 2), 1, 12, archive, ledgers, keep=False)
    raw, second = archive / "v1" / "nodes", folder / "second-day"
    first = folder / "first-day"
    shutil.copytree(raw / "cluster-1", first)
    for path in list(raw.rglob("2026-06-02")):
        shutil.move(path, second / path.relative_to(raw))
    assert run_command(["archive", "compact", str(archive)]) == 0
    shutil.copytree(second, raw, dirs_exist_ok=True)
    shutil.copytree(first, raw / "cluster-1", dirs_exist_ok=True)
    return archive


@pytest.fixture
def archive(location: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a database with the view of the page."""
    with duckdb.connect() as database:
        database.execute(VIEW.replace("LOCATION", str(location)))
        yield database


@pytest.fixture
def report(location: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs `podgpu usage --from` for June and returns its document."""

    def run(*words: str) -> Any:
        span = ("--since", "2026-06-01", "--until", "2026-07-01", "--format", "json")
        assert run_command(["usage", "--from", str(location), *span, *words]) == 0
        return json.loads(capsys.readouterr().out, parse_float=Decimal)

    return run


def _seconds(value: int | Decimal | None) -> Decimal | None:
    return None if value is None else Decimal(value) / 10**9


def _joules(value: int | Decimal | None) -> Decimal | None:
    return None if value is None else Decimal(value) / 1000


def _figures(rows: Sequence[Any], *keys: str) -> list[tuple[Any, ...]]:
    """Return values of a report's rows, sorted."""
    found = [
        tuple(Decimal(row[key]) if isinstance(row[key], int) else row[key] for key in keys)
        for row in rows
    ]
    return sorted(found, key=repr)


@pytest.mark.slow
def test_the_view_has_rows_twice_and_the_queries_count_them_once(
    archive: duckdb.DuckDBPyConnection,
) -> None:
    rows, different = archive.execute(
        "SELECT count(*), count(DISTINCT (cluster, node, ledger, serial)) FROM archive"
    ).fetchall()[0]
    assert rows > different > 0


@pytest.mark.slow
def test_who_used_how_much(archive: duckdb.DuckDBPyConnection, report: Any) -> None:
    found = [
        (namespace, _seconds(held), _seconds(busy), _joules(energy))
        for namespace, held, busy, energy, _ in archive.execute(NAMESPACES).fetchall()
    ]
    keys = ("namespace", "held_seconds", "busy_seconds", "energy_joules")
    assert sorted(found, key=repr) == _figures(report("--by", "namespace")["rows"], *keys)
    assert len(found) == 30


@pytest.mark.slow
def test_cost_by_team(archive: duckdb.DuckDBPyConnection, report: Any) -> None:
    rows = archive.execute(TEAMS).fetchall()
    found = [(team, _seconds(held), _joules(energy)) for team, held, energy, _ in rows]
    expected = report("--by", "label:team")["rows"]
    assert sorted(found, key=repr) == _figures(expected, "label", "held_seconds", "energy_joules")
    for _, held, energy, cost in rows:
        exact = held / Decimal("3.6e12") * Decimal("2.50")
        exact += (energy or 0) / Decimal("3.6e9") * Decimal("0.31")
        assert abs(Decimal(cost) - exact) <= Decimal("0.0051")


@pytest.mark.slow
def test_gpus_that_are_held_and_idle(archive: duckdb.DuckDBPyConnection, report: Any) -> None:
    found = [
        (namespace, kind, name, _seconds(idle), _seconds(held))
        for namespace, kind, name, idle, held in archive.execute(IDLE).fetchall()
    ]
    rows = [row for row in report("--by", "workload")["rows"] if row["idle_seconds"] is not None]
    rows.sort(key=lambda row: row["idle_seconds"], reverse=True)
    keys = ("namespace", "owner_kind", "owner_name", "idle_seconds", "held_seconds")
    assert sorted(found, key=repr) == _figures(rows[:100], *keys)


@pytest.mark.slow
def test_free_unknown_and_missing_time(archive: duckdb.DuckDBPyConnection, report: Any) -> None:
    rows = archive.execute(FREE).fetchall()
    by_node: dict[tuple[str, str], list[int]] = {}
    for cluster, node, _, free, unknown, *_ in rows:
        sums = by_node.setdefault((cluster, node), [0, 0])
        by_node[cluster, node] = [sums[0] + free, sums[1] + unknown]
    found = [(*place, *map(_seconds, sums)) for place, sums in by_node.items()]
    document = report("--by", "node")
    keys = ("cluster", "node", "free_seconds", "unknown_seconds")
    assert sorted(found, key=repr) == _figures(document["rows"], *keys)
    for column, key in ((5, "gap_seconds"), (6, "accounted_seconds")):
        total = sum(Decimal(device[key]) for device in document["devices"])
        assert _seconds(sum(row[column] for row in rows)) == total > 0


@pytest.mark.slow
def test_long_holdings_with_little_use(archive: duckdb.DuckDBPyConnection, report: Any) -> None:
    # Two days have few holdings of a day or more.
    query = LONG.replace("86400000000000", "14400000000000").replace("LIMIT 100", "")
    found = [
        (pod, device, _seconds(held), _seconds(busy))
        for _, _, _, pod, _, device, _, _, held, busy in archive.execute(query).fetchall()
    ]
    rows = [
        row
        for row in report("--holdings", "--limit", "100000")["holdings"]
        if row["counted_seconds"] + row["gap_seconds"] >= 14400
        and row["busy_seconds"] is not None
        and row["busy_seconds"] < row["held_seconds"] / 10
    ]
    assert sorted(found, key=repr) == _figures(
        rows, "pod", "device", "held_seconds", "busy_seconds"
    )
    assert found


@pytest.mark.slow
def test_pods_hit_by_xid_errors(archive: duckdb.DuckDBPyConnection, report: Any) -> None:
    found = [
        (pod, device, sorted((int(code), count) for code, count in json.loads(xids).items()))
        for _, _, _, pod, _, device, _, _, xids in archive.execute(XIDS).fetchall()
    ]
    expected = [
        (row["pod"], row["device"], [(xid["code"], xid["count"]) for xid in row["xids"]])
        for row in report("--holdings", "--limit", "100000")["holdings"]
        if row["xids"]
    ]
    assert sorted(found) == sorted(expected)
    assert found
