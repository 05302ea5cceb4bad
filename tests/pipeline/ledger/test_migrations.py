"""A ledger of an earlier version is migrated to the current tables, and continued."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.migrations import migrate
from pipeline.ledger.queries import read_holdings, read_window
from pipeline.ledger.schema import VERSION, columns, columns_of
from pipeline.ledger.writer_open import open_readwrite, read_stored_state
from pipeline.model import NS, Instant
from tests.pipeline.ledger.machine import Machine, rows
from tests.pipeline.ledger.open_ledger import FOREVER, OpenLedger, assert_adds_up, window_of
from tests.podgpu.cli.usage.ledgers import write_day

OLD = Path(__file__).parent / "data"
"""`day`: two GPUs, a restart and two gaps. `live`: of a podgpu that was killed twice."""

LIVE_NS = 1_795_928_061_536_695_049
"""Time of the last sample in `live`, by the wall clock."""


OF_VERSION_2 = OLD / "ledger-2-day.db"
"""The same day as `day`, written with the tables of version 2."""


@pytest.fixture(params=["day", "live"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "usage.db"
    shutil.copy(OLD / f"ledger-0.1.0-{request.param}.db", path)
    return path


def content(path: Path) -> list[object]:
    """Return everything that both versions have."""
    return [
        rows(path, text)
        for text in (
            """SELECT device, container, start_ns, end_ns, until_ns, counted_ns, gap_ns, held_ns,
            busy_ns, energy_mj, xids FROM holdings ORDER BY 1, 2, 3""",
            "SELECT hour, device, container, held_ns, busy_ns, energy_mj FROM hours",
            "SELECT hour, device, accounted_ns, gap_ns, busy_ns, energy_mj FROM device_hours",
            "SELECT device, start_ns, end_ns, reason FROM gaps ORDER BY 1, 2",
            "SELECT * FROM containers",
        )
    ]


def all_rows(path: Path) -> list[object]:
    """Return the rows of all tables of version 2 except `meta`."""
    known = columns(2)
    return [
        rows(path, f"SELECT {', '.join(sorted(c for t, c in known if t == table))} FROM {table}")  # noqa: S608
        for table in sorted({table for table, _ in known} - {"meta"})
    ]


def version(path: Path) -> tuple[int, ...]:
    return rows(path, "PRAGMA user_version")[0]


def test_migration_keeps_all_content(old: Path) -> None:
    before, window = content(old), window_of(old)
    assert version(old) == (1,)
    with closing(open_readwrite(old, "normal")) as connection:
        assert columns_of(connection) == columns()
        stored = read_stored_state(connection, str(old))
    assert version(old) == (VERSION,)
    assert content(old) == before
    assert window_of(old) == window
    assert stored.invalid == 0
    # Each continuing holding has its row.
    continuing = {
        c.holding.id for one in stored.accounts.values() for c in one.containers if c.holding
    }
    assert continuing == set(stored.open_holdings) != set()
    row_ids = [row[0] for row in rows(old, "SELECT id FROM holdings UNION ALL SELECT id FROM gaps")]
    assert all(row_ids)
    accounts = stored.accounts.values()
    ids = [*(one.id for one in accounts), *(c.id for one in accounts for c in one.containers)]
    assert len({*ids, *row_ids}) == len(ids) + len(row_ids)


def test_version_2_gets_the_tables_of_the_archive_and_keeps_all_content(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    shutil.copy(OF_VERSION_2, path)
    assert version(path) == (2,)
    before = all_rows(path)
    meta = dict(rows(path, "SELECT key, value FROM meta"))
    window = window_of(path)
    assert version(path) == (2,), "a reader changes nothing"
    with closing(open_readwrite(path, "normal")) as connection:
        assert columns_of(connection) == columns()
        assert read_stored_state(connection, str(path)).invalid == 0
    assert version(path) == (VERSION,)
    assert all_rows(path) == before
    after = dict(rows(path, "SELECT key, value FROM meta"))
    ledger_id = after.pop("ledger_id")
    assert len(bytes.fromhex(str(ledger_id))) == 8
    assert after == meta | {"tables": str(VERSION)}
    assert window_of(path) == window
    with closing(open_readwrite(path, "normal")):
        pass
    assert dict(rows(path, "SELECT key, value FROM meta"))["ledger_id"] == ledger_id


def test_the_error_of_earlier_busy_time_is_unknown(old: Path) -> None:
    """0 would claim that it is exact."""
    query = "SELECT contested_ns, switching_ns FROM {} WHERE busy_ns IS NOT NULL"
    for migrated in (False, True):
        if migrated:
            with closing(open_readwrite(old, "normal")):
                pass
            for table in ("hours", "holdings"):
                assert set(rows(old, query.format(table))) == {(None, None)}
        with closing(open_readonly(old)) as connection:
            found = read_holdings(connection, 0, FOREVER)
            used = read_window(connection, 0, FOREVER).usage
        amounts = [(one.busy_ns, one.contested_ns, one.switching_ns) for one in found]
        amounts += [
            (one.busy_ns, one.contested_ns, one.switching_ns)
            for one in used
            if one.container is not None
        ]
        known = [(contested, switching) for busy, contested, switching in amounts if busy]
        assert set(known) == {(None, None)}


def test_a_reader_does_not_migrate_a_ledger_and_can_read_it(old: Path) -> None:
    with closing(open_readonly(old)) as connection:
        window = read_window(connection, 0, FOREVER)
        assert read_holdings(connection, 0, FOREVER)
    assert_adds_up(window)
    assert [total.unknown_ns for total in window.totals] == [0] * len(window.totals)
    assert version(old) == (1,)


@pytest.mark.parametrize("since", [1, 2])
def test_a_crash_during_migration_leaves_the_file_unchanged(tmp_path: Path, since: int) -> None:
    """Whichever statement is the last one."""
    old = tmp_path / "usage.db"
    shutil.copy(OLD / "ledger-0.1.0-day.db" if since == 1 else OF_VERSION_2, old)
    before, count = content(old), 0

    class CrashError(Exception):
        pass

    done = False
    while not done:
        count += 1
        stored = count

        class Crashing(sqlite3.Connection):
            def execute(self, *arguments):  # type: ignore[no-untyped-def]
                nonlocal stored
                stored -= 1
                if not stored:
                    raise CrashError
                return super().execute(*arguments)

        connection = sqlite3.connect(old, isolation_level=None, factory=Crashing)
        try:
            migrate(connection)
            done = True
        except CrashError:
            pass
        finally:
            connection.close()
        if not done:
            assert (version(old), content(old)) == ((since,), before)
    assert count > 8
    assert (version(old), content(old)) == ((VERSION,), before)


def test_an_inconsistent_account_is_skipped_by_the_migration(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    shutil.copy(OLD / "ledger-0.1.0-day.db", path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE state SET usage = '{\"device\": 7}' "
            "WHERE device = (SELECT min(device) FROM state)"
        )
        connection.commit()
    with closing(open_readwrite(path, "normal")) as connection:
        stored = read_stored_state(connection, str(path))
    assert (stored.invalid, len(stored.accounts)) == (1, 1)


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_t7_podgpu_continues_from_a_migrated_ledger(tmp_path: Path, ahead: int) -> None:
    """Totals, holdings and ids; the time between is a gap, or 0 if the clock was set back."""
    path = tmp_path / "usage.db"
    shutil.copy(OLD / "ledger-0.1.0-live.db", path)
    [(accounted, gaps)] = rows(path, "SELECT sum(accounted_ns), sum(gap_ns) FROM device_hours")
    machine = Machine(path, holder="", ahead_ns=ahead * NS)
    machine.booted_ns = LIVE_NS + 30 * NS - machine.now().wall_ns + ahead * NS
    down = max(30 + ahead, 0)
    run = machine.start()
    machine.wait(1)
    run.sample()
    machine.wait(10)
    run.sample()
    run.commit()
    [(now, later)] = rows(path, "SELECT sum(accounted_ns), sum(gap_ns) FROM device_hours")
    assert (now - accounted, later - gaps) == (10 * NS, (down + 1) * NS)
    assert_adds_up(window_of(path))
    # The two holders were not seen again: they ended when podgpu 0.1.0 did.
    machine.wait(61)
    run.sample()
    machine.wait(1)
    run.sample()
    run.commit()
    assert rows(path, "SELECT count(*) FROM holdings WHERE end_ns IS NULL") == [(0,)]
    run.kill()
    [(total,)] = rows(path, "SELECT usage FROM state")
    assert json.loads(str(total))["elapsed_ns"] == accounted + 72 * NS


def test_a_ledger_of_010_and_of_today_have_the_same_content(tmp_path: Path) -> None:
    """What podgpu writes today for the same day is equal to what 0.1.0 wrote."""
    old, new = tmp_path / "old.db", write_day(tmp_path / "new.db")
    shutil.copy(OLD / "ledger-0.1.0-day.db", old)
    assert window_of(old).usage == window_of(new).usage
    without_index = tuple(replace(one, index=None) for one in window_of(new).totals)
    assert window_of(old).totals == without_index, "0.1.0 did not store the index"
    ledger = OpenLedger(old, Instant(90_000 * NS, 1_800_090_000 * NS))
    assert len(ledger.stored.open_holdings) == 2
    ledger.close()
