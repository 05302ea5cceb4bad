"""The ledger stores the index of each GPU, and each index belongs to one GPU."""

from contextlib import closing
from pathlib import Path

from pipeline.ledger.gpu_indexes import read_gpu_indexes, write_gpu_index
from pipeline.ledger.writer_open import open_readwrite
from tests.pipeline.ledger.open_ledger import window_of
from tests.podgpu.cli.usage.ledgers import write_day
from tests.support.nodes import uuid_of


def test_the_writer_stores_the_index_of_each_gpu(tmp_path: Path) -> None:
    totals = window_of(write_day(tmp_path / "usage.db")).totals
    assert [(one.index, one.gpu) for one in totals] == [(0, uuid_of(0)), (1, uuid_of(1))]


def test_an_index_belongs_to_the_gpu_that_had_it_last(tmp_path: Path) -> None:
    with closing(open_readwrite(tmp_path / "usage.db", "normal")) as connection:
        for gpu, index in (("GPU-a", 0), ("GPU-b", 1), ("GPU-b", 0)):
            write_gpu_index(connection, gpu, index)
        assert read_gpu_indexes(connection) == {"GPU-b": 0}


def test_the_devices_of_a_window_are_sorted_by_index(tmp_path: Path) -> None:
    path = write_day(tmp_path / "usage.db")
    with closing(open_readwrite(path, "normal")) as connection:
        for gpu, index in ((uuid_of(0), 10), (uuid_of(1), 9)):
            write_gpu_index(connection, gpu, index)
    assert [one.index for one in window_of(path).totals] == [9, 10]
