"""Garbage in a valid file is refused or does no harm: nothing hangs, no other error is raised."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.ledger.account_state import dump, load, to_current_clock
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_holdings, read_window
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import NS, DeviceUsage
from tests.pipeline.ledger.open_ledger import FOREVER, OpenLedger, Snapshots, folder_in_memory
from tests.pipeline.ledger.test_account_state import GPU, account_with_holding
from tests.support.nodes import at
from tests.support.usage import account, holding, used

GARBAGE: tuple[object, ...] = (
    *(10**30, -(10**30), 1 << 70, 1 << 63, (1 << 62) + 5, -1, 0, 1.5, float("nan"), float("inf")),
    *("x", "\udc80", "\x1b[2J", None, True, [], {}),
)
SNAPSHOT = Snapshots()
Place = tuple[str | int, ...]


def paths_in(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the path of each value in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inside:
        yield (*place, key)
        if isinstance(each, dict | list):
            yield from paths_in(each, (*place, key))


def with_garbage(place: Place, garbage: object) -> str:
    document = inner = json.loads(dump(account_with_holding()))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = garbage
    return json.dumps(document)


def load_or_none(text: str) -> DeviceUsage | None:
    try:
        return load(GPU.uuid, text)
    except ValueError:
        return None


@pytest.mark.slow
def test_an_account_with_garbage_is_refused_or_can_be_continued() -> None:
    refused = accepted = 0
    with (
        folder_in_memory() as folder,
        closing(open_readwrite(folder / "usage.db", "normal")) as connection,
    ):
        store = BatchWriter(connection)
        for place in paths_in(json.loads(dump(account_with_holding()))):
            for garbage in GARBAGE:
                document = load_or_none(with_garbage(place, garbage))
                if document is None:
                    refused += 1
                    continue
                accepted += 1
                (restored,) = to_current_clock([document], at(100)).devices
                later = replace(
                    restored,
                    at=at(200),
                    elapsed_ns=restored.elapsed_ns + NS,
                    unheld_ns=restored.unheld_ns + NS,
                )
                for now in (later, account(GPU, until=at(200), unheld=NS)):
                    accumulator = LedgerAccumulator(at(100), {GPU.uuid: restored})
                    accumulator.add_snapshot(SNAPSHOT(now))
                    batch = accumulator.take_batch()
                    assert len(batch.gap_hours) < 10_000, (place, garbage)
                    store.write_batch(batch)
    assert refused > 5 * accepted > 0


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE containers SET labels = '{'",
        "UPDATE containers SET labels = '7'",
        "UPDATE containers SET labels = x'ff'",
        "UPDATE containers SET pod = x'ff'",
        "UPDATE containers SET pod = CAST(x'ff' AS TEXT)",
        "UPDATE holdings SET xids = '[]'",
        "UPDATE hours SET held_ns = 9223372036854775807",
        "UPDATE hours SET hour = 'x'",
        "UPDATE gaps SET start_ns = 'x'",
        "UPDATE meta SET value = x'ff' WHERE key = 'node'",
        "DELETE FROM devices",
        "DELETE FROM containers",
    ],
)
def test_reading_a_file_that_another_program_changed_raises_only_sqlite_errors(
    tmp_path: Path, damage: str
) -> None:
    ledger = OpenLedger(tmp_path / "usage.db")
    containers = [used(n, held=5 * NS, holding=holding(n, GPU, until=at(10))) for n in ("a", "b")]
    ledger.accumulator.add_snapshot(SNAPSHOT(account(GPU, *containers, until=at(10))))
    ledger.commit()
    ledger.close()
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute(damage)
    with closing(open_readonly(ledger.path)) as connection:
        for read in (read_window, read_holdings):
            with contextlib.suppress(sqlite3.Error):
                read(connection, 0, FOREVER)
            assert not connection.in_transaction


@pytest.mark.parametrize("number", [1 << 62, 1 << 63, 10**30])
def test_r4_a_number_too_large_for_the_file_is_stored_as_the_largest_possible(
    tmp_path: Path, number: int
) -> None:
    """For example, from a damaged recording; other values are written unchanged."""
    ledger = OpenLedger(tmp_path / "usage.db")
    held = replace(
        holding("a", GPU, until=at(10)), busy_ns=number, gap_ns=-number, memory_peak_bytes=number
    )
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account(GPU, used("a", held=5 * NS, holding=held), until=at(10)))
    )
    ledger.commit()
    rows = ledger.rows("SELECT busy_ns, gap_ns, memory_peak_bytes, held_ns FROM holdings")
    assert rows == [(1 << 62, -(1 << 62), 1 << 62, held.held_ns)]
    ledger.close()
