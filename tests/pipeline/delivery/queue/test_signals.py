"""Tests of records of several signals in one queue: they keep their order and do not mix."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.delivery.contract import SIGNALS, Record
from pipeline.delivery.queue.disk.record_format import (
    MAX_RECORD_BYTES,
    RECORD_SIZE,
    pack_record_header,
    read_record_header,
)
from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.support import KINDS, Bench, checked, points, record

OLD_HEADER = bytes.fromhex(
    "f5726563 28000000 0300000000000000 0700000000000000 1500000000000000 00ca9a3b00000000"
    "0e699eeb 69a4d842"
)
"""The header of a record as it was written before there were signals."""


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path / "queue")


def records_of(*signals: int) -> list[Record]:
    return [replace(record(number), signal=signal) for number, signal in enumerate(signals)]


def take_all(queue: MemoryQueue, most: int = 1 << 20) -> Iterator[tuple[Record, ...]]:
    while found := queue.take(most):
        yield found
        queue.settle(len(found), acked=points(found))


def test_records_of_different_signals_are_taken_separately(bench: Bench) -> None:
    queue, put = bench.open(), records_of(0, 0, 1, 0, 1, 1)
    queue.append(put)
    assert list(take_all(queue)) == [tuple(put[:2]), (put[2],), (put[3],), tuple(put[4:])]
    assert checked(queue).totals.queued == 0


def test_released_records_of_a_signal_are_taken_again(bench: Bench) -> None:
    queue, put = bench.open(), records_of(1, 1, 0)
    queue.append(put)
    for _ in range(2):
        assert queue.take(1 << 20) == tuple(put[:2])
        queue.release()
    assert list(take_all(queue)) == [tuple(put[:2]), (put[2],)]


@pytest.mark.parametrize("kind", ["disk", "safe"])
def test_the_signal_of_a_record_survives_a_restart(kind: str, tmp_path: Path) -> None:
    put = records_of(0, 1, 1, 0)
    first = Bench(kind, tmp_path / "queue").open()
    first.append(put)
    first.close()
    again = Bench(kind, tmp_path / "queue").open()
    assert [found for message in take_all(again) for found in message] == put


@given(st.lists(st.integers(0, SIGNALS - 1), max_size=30), st.integers(0, 500))
def test_records_keep_their_order_with_any_signals(signals: list[int], most: int) -> None:
    queue, put = MemoryQueue(1 << 20), records_of(*signals)
    queue.append(put)
    messages = list(take_all(queue, most))
    assert [found for message in messages for found in message] == put
    assert all(len({found.signal for found in message}) == 1 for message in messages)
    if most == 500:
        assert len(messages) >= len(list(groupby(signals)))


@given(st.integers(0, SIGNALS - 1), st.integers(1, 300))
def test_a_header_is_read_as_it_was_written(signal: int, size: int) -> None:
    packed = pack_record_header(Record(b"." * size, 3, 10**9, signal), 7, 21, 5)
    head = read_record_header(packed, 5)
    assert head is not None
    assert (head.length, head.signal, head.points) == (size, signal, 3)
    assert head.length <= MAX_RECORD_BYTES
    assert len(packed) == RECORD_SIZE


def test_records_of_the_main_signal_have_the_format_before_signals() -> None:
    packed = pack_record_header(Record(b"." * 40, 3, 10**9), 7, 21, 5)
    assert packed == OLD_HEADER
    head = read_record_header(OLD_HEADER, 5)
    assert head is not None
    assert (head.length, head.signal) == (40, 0)


def test_a_signal_that_does_not_fit_into_the_header_is_an_error() -> None:
    with pytest.raises(ValueError, match="signal 4 is out of range"):
        pack_record_header(Record(b".", 1, 0, SIGNALS), 1, 1, 1)
