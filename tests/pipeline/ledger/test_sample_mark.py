"""A ledger with sample data is marked, and each reader of its usage learns what made it."""

from contextlib import closing
from pathlib import Path

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.sample_mark import mark_as_sample, sample_maker
from pipeline.ledger.writer_open import open_readwrite
from tests.pipeline.ledger.open_ledger import window_of
from tests.podgpu.cli.usage.ledgers import write_day


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
