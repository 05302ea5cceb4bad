"""A ledger with sample data is marked, and each reader of its usage learns what made it."""

from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.sample_mark import mark_as_sample, sample_maker
from pipeline.ledger.writer_open import open_readwrite, read_stored_state
from pipeline.model import NS
from tests.pipeline.ledger.open_ledger import Snapshots, moved, window_of
from tests.podgpu.cli.usage.ledgers import write_day
from tests.support.nodes import START, uuid_of
from tests.support.usage import account


def test_measured_usage_has_no_mark(tmp_path: Path) -> None:
    path = write_day(tmp_path / "usage.db")
    assert window_of(path).sample_data == ""
    with closing(open_readonly(path)) as connection:
        assert sample_maker(connection) == ""


def test_the_mark_names_what_made_the_data(tmp_path: Path) -> None:
    path = write_day(tmp_path / "usage.db")
    with closing(open_readwrite(path, "normal")) as connection:
        mark_as_sample(connection, "podgpu demo")
    assert window_of(path).sample_data == "podgpu demo"
    with closing(open_readonly(path)) as connection:
        assert sample_maker(connection) == "podgpu demo"


@pytest.mark.parametrize("is_sample", [False, True])
def test_the_time_after_sample_data_is_no_gap(is_sample: bool, tmp_path: Path) -> None:
    """podgpu was not down: it had not run before. A later gap counts."""
    with closing(open_readwrite(tmp_path / "usage.db", "normal")) as connection:
        if is_sample:
            mark_as_sample(connection, "podgpu demo")
        stored = read_stored_state(connection, "usage.db")
    uuid, begun, later = uuid_of(0), moved(START, 30), moved(START, 60)
    before = {uuid: account(uuid, start=moved(START, -9), until=START, unheld=9 * NS)}
    found = LedgerAccumulator(begun, before, is_sample=stored.is_sample)
    make = Snapshots()
    found.add_snapshot(make(account(uuid, start=begun, until=moved(begun, 5), unheld=5 * NS)))
    assert sum(found.take_batch().gap_hours.values()) == (0 if is_sample else 30 * NS)
    found.add_snapshot(make(account(uuid, start=begun, until=later, unheld=25 * NS)))
    assert sum(found.take_batch().gap_hours.values()) == 5 * NS
