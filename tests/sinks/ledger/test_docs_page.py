"""The SQL queries on the documentation page work, and the page describes all tables."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.schema import TABLES
from pipeline.model import NS, PodInfo
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots
from tests.support.nodes import at, gpu
from tests.support.usage import account, holding, used

PAGE = (Path(__file__).parents[3] / "docs/sinks/ledger.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
GPU = gpu(0)


@pytest.fixture
def results(tmp_path: Path) -> list[list[tuple[object, ...]]]:
    """Return the results of the page's queries on a ledger of two hours."""
    info = PodInfo("u-a", "ml", "a", labels=(("team", "vision"),))
    ledger, snapshot_of = OpenLedger(tmp_path / "usage.db"), Snapshots()
    hours = 3600 * NS
    for hour in (0, 2):
        held, busy = hour * hours, hour * hours // 20
        running = holding("a", GPU, info=info, until=at(hour * 3600), held=held, busy=busy)
        one = used("a", info=info, held=held, busy=busy, energy=hour * 10**9, holding=running)
        ledger.accumulator.add_snapshot(
            snapshot_of(account(GPU, one, until=at(hour * 3600), unheld=0))
        )
    ledger.commit()
    ledger.close()
    with closing(sqlite3.connect(ledger.path)) as connection:
        # Move the hours to the present.
        connection.execute(
            "UPDATE hours SET hour = hour + strftime('%s', 'now') / 3600 - "
            "(SELECT max(hour) FROM device_hours)"
        )
        connection.execute(
            "UPDATE device_hours SET hour = hour + strftime('%s', 'now') / 3600 - "
            "(SELECT max(hour) FROM device_hours)"
        )
        return [connection.execute(query).fetchall() for query in QUERIES]


def test_the_queries_of_the_page_return_what_the_page_says(
    results: list[list[tuple[object, ...]]],
) -> None:
    of_namespaces, of_teams, idle, wrong = results
    assert of_namespaces == [("ml", 2.0, 0.1), (None, 0.0, 0.0)]
    assert of_teams == [("vision", 0.556), (None, 0.0)]
    assert idle == [("ml", "a", GPU.uuid, "2027-01-15 08:00:00", 2.0, 5.0)]
    assert wrong == []


def test_the_page_names_all_tables_and_columns() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(TABLES)
        names = database.execute(
            "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table'"
        ).fetchall()
    for table, column in names:
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{table}` |")]
        assert f"`{column}`" in row, (table, column)
