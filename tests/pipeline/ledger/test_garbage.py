"""Garbage in a file that was sound is refused or does no harm: nothing hangs, nothing escapes."""

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
from pipeline.ledger.batch_writer import Store
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_creation import open_readwrite
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_holdings, read_window
from pipeline.model import NS, DeviceUsage
from tests.pipeline.ledger.keeping import FOREVER, Kept, Shown
from tests.pipeline.ledger.test_account_state import GPU, full
from tests.support.nodes import at
from tests.support.usage import account, holding, used

GARBAGE: tuple[object, ...] = (
    *(10**30, -(10**30), 1 << 70, 1 << 63, (1 << 62) + 5, -1, 0, 1.5, float("nan"), float("inf")),
    *("x", "\udc80", "\x1b[2J", None, True, [], {}),
)
SHOWN = Shown()
Place = tuple[str | int, ...]


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield where something stands in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inside:
        yield (*place, key)
        if isinstance(each, dict | list):
            yield from places(each, (*place, key))


def with_garbage(place: Place, garbage: object) -> str:
    given_out = inner = json.loads(dump(full()))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = garbage
    return json.dumps(given_out)


def loaded(text: str) -> DeviceUsage | None:
    try:
        return load(GPU.uuid, text)
    except ValueError:
        return None


def test_an_account_with_garbage_anywhere_is_refused_or_can_be_gone_on_from(tmp_path: Path) -> None:
    refused = taken = 0
    with closing(open_readwrite(tmp_path / "usage.db", "normal")) as connection:
        store = Store(connection)
        for place in places(json.loads(dump(full()))):
            for garbage in GARBAGE:
                given_out = loaded(with_garbage(place, garbage))
                if given_out is None:
                    refused += 1
                    continue
                taken += 1
                (continues,) = to_current_clock([given_out], at(100)).devices
                later = replace(
                    continues,
                    at=at(200),
                    elapsed_ns=continues.elapsed_ns + NS,
                    unheld_ns=continues.unheld_ns + NS,
                )
                for now in (later, account(GPU, until=at(200), unheld=NS)):
                    book = LedgerAccumulator(at(100), {GPU.uuid: continues})
                    book.add_snapshot(SHOWN(now))
                    batch = book.take_batch()
                    assert len(batch.gap_hours) < 10_000, (place, garbage)
                    store.write_batch(batch)
    assert refused > 5 * taken > 0


@pytest.mark.parametrize(
    "spoil",
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
def test_a_file_in_which_others_have_written_fails_as_a_file_if_it_fails(
    tmp_path: Path, spoil: str
) -> None:
    kept = Kept(tmp_path / "usage.db")
    had = [used(n, held=5 * NS, holding=holding(n, GPU, until=at(10))) for n in ("a", "b")]
    kept.book.add_snapshot(SHOWN(account(GPU, *had, until=at(10))))
    kept.commit()
    kept.close()
    with closing(sqlite3.connect(kept.path)) as connection, connection:
        connection.execute(spoil)
    with closing(open_readonly(kept.path)) as connection:
        for read in (read_window, read_holdings):
            with contextlib.suppress(sqlite3.Error):
                read(connection, 0, FOREVER)
            assert not connection.in_transaction


@pytest.mark.parametrize("number", [1 << 62, 1 << 63, 10**30])
def test_r4_a_number_that_the_file_has_no_room_for_is_the_largest_it_has(
    tmp_path: Path, number: int
) -> None:
    """As a damaged recording may tell it; what is told besides is written as it is."""
    kept = Kept(tmp_path / "usage.db")
    held = replace(
        holding("a", GPU, until=at(10)), busy_ns=number, gap_ns=-number, memory_peak_bytes=number
    )
    kept.book.add_snapshot(SHOWN(account(GPU, used("a", held=5 * NS, holding=held), until=at(10))))
    kept.commit()
    rows = kept.rows("SELECT busy_ns, gap_ns, memory_peak_bytes, held_ns FROM holdings")
    assert rows == [(1 << 62, -(1 << 62), 1 << 62, held.held_ns)]
    kept.close()
