"""The start of the data: the first counted time, not the start of its hour."""

from pathlib import Path

from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS, Instant, Snapshot
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, moved, query
from tests.support.nodes import uuid_of
from tests.support.usage import account

BORN = Instant(10**12, 1_796_040_000 * NS + 23 * 60 * NS)
"""23 minutes after a full hour."""


def counted(seconds: float) -> Snapshot:
    """Return a snapshot in which a GPU has been counted for some seconds."""
    return Snapshots()(
        account(uuid_of(0), start=BORN, until=moved(BORN, seconds), unheld=round(seconds * NS))
    )


def ledger_of(path: Path, *seconds: float) -> OpenLedger:
    ledger = OpenLedger(path, BORN)
    for each in seconds:
        ledger.accumulator.add_snapshot(counted(each))
        ledger.commit()
    return ledger


def test_a_report_starts_with_the_first_sample(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "usage.db", 60, 120)
    assert ledger.window().start_ns == BORN.wall_ns
    assert ledger.window(BORN.wall_ns + 60 * NS).start_ns == BORN.wall_ns


def test_a_later_report_starts_with_a_full_hour(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "usage.db", 60, 7200)
    later = BORN.wall_ns + HOUR_NS
    assert ledger.window(later).start_ns == later // HOUR_NS * HOUR_NS


def test_without_its_first_hour_a_ledger_starts_with_a_full_hour(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "usage.db", 60, 7200)
    first = BORN.wall_ns // HOUR_NS
    for table in ("hours", "device_hours"):
        ledger.rows(f"DELETE FROM {table} WHERE hour = ?", first)  # noqa: S608
    assert ledger.window().start_ns == (first + 1) * HOUR_NS


def test_a_file_of_an_older_podgpu_starts_with_its_first_full_hour(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    ledger_of(path, 60).rows("DELETE FROM meta WHERE key = 'start_ns'")
    ledger = ledger_of(path, 120)
    assert ledger.window().start_ns == BORN.wall_ns // HOUR_NS * HOUR_NS
    assert query(path, "SELECT * FROM meta WHERE key = 'start_ns'") == []
