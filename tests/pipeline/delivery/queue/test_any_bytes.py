"""Tests of folders with arbitrary bytes, and of the memory that reading them takes."""

import tracemalloc
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.delivery.contract import Record
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    numbers,
    on_disk,
    segments,
)
from tests.support.examples import examples


@cache
def _intact_files(folder: Path) -> dict[str, bytes]:
    """Return the segments and the cursor of a queue of 30 records, of which 4 are settled."""
    bench = Bench("disk", folder / "intact")
    queue = bench.open()
    fill(queue, 30, size=5000)
    for _ in range(2):
        queue.settle(len(queue.take(10_000)), acked=_points_in_flight(queue))
    queue.close()
    files = [*segments(bench.path), bench.path / "cursor"]
    return {path.name: path.read_bytes() for path in files}


@settings(deadline=None, max_examples=examples(80))
@given(data=st.data())
def test_f1_any_bytes_are_read_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    bench = Bench("disk", tmp_path_factory.mktemp("any") / "queue")
    bench.path.mkdir()
    for name, content in _intact_files(tmp_path_factory.getbasetemp()).items():
        path, whole = bench.path / name, bytearray(content)
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(whole)))
            piece = data.draw(
                st.one_of(
                    st.binary(max_size=200),
                    st.integers(0, 9000).map(bytes),
                    st.builds(
                        lambda start, size, whole=bytes(whole): whole[start : start + size],
                        st.integers(0, len(whole)),
                        st.integers(0, 6000),
                    ),
                )
            )
            if data.draw(st.booleans()):
                whole[place : place + len(piece)] = piece
            else:
                whole[place:place] = piece
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] or whole)
    queue = bench.open()
    checked(queue)
    found = numbers(drain(queue))
    assert found == sorted(set(found))
    put = fill(queue, 3, start=100)
    assert drain(queue) == put
    assert checked(queue).totals.queued == 0
    queue.close()


def _points_in_flight(queue: object) -> int:
    return sum(queue._points_in_flight())  # type: ignore[attr-defined]


def test_f1_a_large_queue_is_opened_and_read_with_little_memory(tmp_path: Path) -> None:
    bench = Bench("disk", tmp_path / "queue", max_size=256 << 20)
    queue = bench.open()
    data = bytes(256 << 10)
    for number in range(160):
        queue.append([Record(b"%012d" % number + data, 1, number)])
    queue.close()
    assert on_disk(bench.path) > 40 << 20
    tracemalloc.start()
    try:
        queue = bench.open()
        for _ in range(20):
            taken = queue.take(1 << 20)
            queue.settle(len(taken), acked=len(taken))
            del taken
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.slow
def test_f1_a_large_segment_with_a_corrupt_header_needs_little_memory(tmp_path: Path) -> None:
    bench = Bench("disk", tmp_path / "queue", max_size=256 << 20)
    bench.path.mkdir()
    (bench.path / f"{1:020}.seg").write_bytes(b"\xf5rec" * (1 << 14) + bytes(15 << 20))
    tracemalloc.start()
    try:
        queue = bench.open()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
    assert checked(queue).faults == {("open", "quarantined"): 1}
