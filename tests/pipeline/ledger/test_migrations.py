"""A ledger of podgpu 0.1.0 is brought to the present tables, and gone on from."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.file_creation import open_readwrite, read_stored_state
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.migrations import migrate
from pipeline.ledger.queries import read_holdings, read_window
from pipeline.ledger.schema import VERSION, columns, columns_of
from pipeline.model import NS, Instant
from tests.pipeline.ledger.keeping import FOREVER, Kept, assert_adds_up, window_of
from tests.pipeline.ledger.machine import Machine, rows
from tests.podgpu.cli.usage.ledgers import write_day

OLD = Path(__file__).parent / "data"
"""`day`: two GPUs, a restart and two gaps. `live`: a podgpu that was killed twice."""

LIVE_NS = 1_795_928_061_536_695_049
"""The last look in `live`, by the wall clock."""


@pytest.fixture(params=["day", "live"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "usage.db"
    shutil.copy(OLD / f"ledger-0.1.0-{request.param}.db", path)
    return path


def content(path: Path) -> list[object]:
    """All that both versions have."""
    return [
        rows(path, text)
        for text in (
            """SELECT device, container, start_ns, end_ns, until_ns, counted_ns, gap_ns, held_ns,
            busy_ns, energy_mj, xids FROM holdings ORDER BY 1, 2, 3""",
            "SELECT * FROM hours",
            "SELECT hour, device, accounted_ns, gap_ns, busy_ns, energy_mj FROM device_hours",
            "SELECT device, start_ns, end_ns, reason FROM gaps ORDER BY 1, 2",
            "SELECT * FROM containers",
        )
    ]


def version(path: Path) -> tuple[int, ...]:
    return rows(path, "PRAGMA user_version")[0]


def test_it_is_brought_to_the_present_tables_with_all_that_is_in_it(old: Path) -> None:
    before, given_out = content(old), window_of(old)
    assert version(old) == (1,)
    with closing(open_readwrite(old, "normal")) as connection:
        assert columns_of(connection) == columns()
        left = read_stored_state(connection, str(old))
    assert version(old) == (VERSION,)
    assert content(old) == before
    assert window_of(old) == given_out
    assert left.invalid == 0
    # Each holding that goes on is the one of its row.
    running = {c.holding.id for one in left.accounts.values() for c in one.containers if c.holding}
    assert running == set(left.open_holdings) != set()
    every = [row[0] for row in rows(old, "SELECT id FROM holdings UNION ALL SELECT id FROM gaps")]
    assert all(every)
    accounts = left.accounts.values()
    ids = [*(one.id for one in accounts), *(c.id for one in accounts for c in one.containers)]
    assert len({*ids, *every}) == len(ids) + len(every)


def test_who_reads_it_needs_no_podgpu_that_writes_it(old: Path) -> None:
    with closing(open_readonly(old)) as connection:
        window = read_window(connection, 0, FOREVER)
        assert read_holdings(connection, 0, FOREVER)
    assert_adds_up(window)
    assert [total.unknown_ns for total in window.totals] == [0] * len(window.totals)
    assert version(old) == (1,)


def test_a_crash_while_it_is_brought_there_leaves_it_as_it_was(old: Path) -> None:
    """Whichever statement is the last one."""
    before, count = content(old), 0

    class CrashError(Exception):
        pass

    done = False
    while not done:
        count += 1
        left = count

        class Crashing(sqlite3.Connection):
            def execute(self, *given):  # type: ignore[no-untyped-def]
                nonlocal left
                left -= 1
                if not left:
                    raise CrashError
                return super().execute(*given)

        connection = sqlite3.connect(old, isolation_level=None, factory=Crashing)
        try:
            migrate(connection)
            done = True
        except CrashError:
            pass
        finally:
            connection.close()
        if not done:
            assert (version(old), content(old)) == ((1,), before)
    assert count > 10
    assert (version(old), content(old)) == ((VERSION,), before)


def test_an_account_that_makes_no_sense_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    shutil.copy(OLD / "ledger-0.1.0-day.db", path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE state SET usage = '{\"device\": 7}' "
            "WHERE device = (SELECT min(device) FROM state)"
        )
        connection.commit()
    with closing(open_readwrite(path, "normal")) as connection:
        left = read_stored_state(connection, str(path))
    assert (left.invalid, len(left.accounts)) == (1, 1)


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_t7_podgpu_continues_from_it(tmp_path: Path, ahead: int) -> None:
    """Totals, holdings and ids; the time between is a gap, or nothing if the clock was set back."""
    path = tmp_path / "usage.db"
    shutil.copy(OLD / "ledger-0.1.0-live.db", path)
    [(accounted, gaps)] = rows(path, "SELECT sum(accounted_ns), sum(gap_ns) FROM device_hours")
    machine = Machine(path, holder="", ahead_ns=ahead * NS)
    machine.booted_ns = LIVE_NS + 30 * NS - machine.now().wall_ns + ahead * NS
    away = max(30 + ahead, 0)
    run = machine.start()
    machine.wait(1)
    run.look()
    machine.wait(10)
    run.look()
    run.commit()
    [(now, later)] = rows(path, "SELECT sum(accounted_ns), sum(gap_ns) FROM device_hours")
    assert (now - accounted, later - gaps) == (10 * NS, (away + 1) * NS)
    assert_adds_up(window_of(path))
    # Nobody has seen the two that held it: they ended when podgpu 0.1.0 did.
    machine.wait(61)
    run.look()
    machine.wait(1)
    run.look()
    run.commit()
    assert rows(path, "SELECT count(*) FROM holdings WHERE end_ns IS NULL") == [(0,)]
    run.kill()
    [(total,)] = rows(path, "SELECT usage FROM state")
    assert json.loads(str(total))["elapsed_ns"] == accounted + 72 * NS


def test_the_day_is_gone_on_from_too(tmp_path: Path) -> None:
    """What podgpu writes now of the same day says the same as what 0.1.0 wrote."""
    old, new = tmp_path / "old.db", write_day(tmp_path / "new.db")
    shutil.copy(OLD / "ledger-0.1.0-day.db", old)
    assert window_of(old).usage == window_of(new).usage
    assert window_of(old).totals == window_of(new).totals
    kept = Kept(old, Instant(90_000 * NS, 1_800_090_000 * NS))
    assert len(kept.left.open_holdings) == 2
    kept.close()
