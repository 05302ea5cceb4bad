"""D3, D5: tests of records with corrupt or missing bytes."""

import random
from pathlib import Path

import pytest

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.disk.record_format import RECORD_SIZE, SEGMENT_SIZE, pack_record_header
from pipeline.delivery.queue.disk.segment_reader import SegmentFile, find_record
from tests.pipeline.delivery.queue.corruption import flipped, folder
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    kill,
    numbers,
    points,
    record,
    segments,
    settle,
)


@pytest.mark.slow
@pytest.mark.parametrize("bit", range(8))
def test_d5_a_flipped_bit_loses_at_most_one_record(tmp_path: Path, bit: int) -> None:
    """All bits of the segment's header and of the last record's, and one bit of each other byte.

    The headers of all records are alike, and only the last record has no marker after it.
    """
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 3, size=13)
    queue.close()
    (path,) = segments(bench.path)
    whole, cursor = path.read_bytes(), (bench.path / "cursor").read_bytes()
    lost = set()
    last = len(whole) - RECORD_SIZE - 13
    every_bit = {*range(SEGMENT_SIZE), *range(last, last + RECORD_SIZE)}
    for place in range(len(whole)):
        if place not in every_bit and place % 8 != bit:
            continue
        path.write_bytes(flipped(whole, place, bit))
        (bench.path / "cursor").write_bytes(cursor)
        queue = bench.open()
        found = drain(queue)
        missing = [one for one in put if one not in found]
        totals = checked(queue).totals
        queue.close()
        assert len(missing) <= 1, place
        assert len(found) + len(missing) == len(put)
        assert totals.dropped == ({"corrupt": missing[0].points} if missing else {})
        assert totals.appended == points(put)
        assert bool(missing) == (place >= SEGMENT_SIZE)
        lost.add(missing[0] if missing else None)
    assert len(lost) == len(put) + 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
def test_d5_a_flipped_bit_in_one_of_several_segments_loses_at_most_one_record(
    tmp_path: Path, *, closed: bool
) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    queue.close() if closed else kill(queue)
    paths = segments(bench.path)
    assert len(paths) == 4
    whole = [path.read_bytes() for path in paths]
    cursor = (bench.path / "cursor").read_bytes()
    chance = random.Random(1)
    for _ in range(60):
        index = chance.randrange(4)
        place = chance.randrange(len(whole[index]))
        for path, data in zip(paths, whole, strict=True):
            path.write_bytes(data)
        (bench.path / "cursor").write_bytes(cursor)
        paths[index].write_bytes(flipped(whole[index], place, chance.randrange(8)))
        queue = bench.open()
        found = drain(queue, 20_000)
        missing = [one for one in put if one not in found]
        assert len(missing) <= 1
        dropped = checked(queue).totals.dropped
        # Until the cursor is written, only its own header shows that the last record exists.
        if closed or missing != put[-1:]:
            assert dropped == ({"corrupt": points(missing)} if missing else {})
        kill(queue)


def test_d5_a_byte_that_changes_while_the_queue_is_open_loses_one_record(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 3)
    (path,) = segments(bench.path)
    with path.open("r+b") as file:
        file.seek(SEGMENT_SIZE + 2 * (RECORD_SIZE + 40) + RECORD_SIZE + 5)
        file.write(b"?")
    queue.append([record(3)])
    assert numbers(drain(queue)) == [0, 1, 3]
    state = checked(queue)
    assert state.totals.dropped == {"corrupt": put[2].points}
    assert state.warnings == (f"3 points in {bench.path} were corrupt or missing and are lost",)


def test_d5_corrupt_records_are_reported_in_one_line_per_minute(tmp_path: Path) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 600)
    (path,) = segments(bench.path)
    with path.open("r+b") as file:
        for number in range(0, 600, 2):
            file.seek(SEGMENT_SIZE + number * (RECORD_SIZE + 40) + RECORD_SIZE)
            file.write(b"?")
    warnings: list[str] = []
    for _ in range(320):
        taken = queue.take(80)
        queue.settle(len(taken), acked=points(taken))
        warnings += checked(queue).warnings
        bench.clock.pass_(1)
    queue.close()
    warnings += queue.state().warnings
    assert 5 <= len(warnings) <= 7
    assert sum(int(line.split()[0]) for line in warnings) == points(put[::2])
    assert queue.state().totals.dropped == {"corrupt": points(put[::2])}


def test_d5_a_record_of_another_segment_within_a_corrupt_record_is_ignored(tmp_path: Path) -> None:
    """A file system can leave such bytes in place of data that was not written to the disk."""
    bench = folder(tmp_path)
    queue = bench.open()
    for number in range(2):
        other = record(50 + number, points=1)
        segment = 1 - number  # the first one looks as if it belonged to this segment
        head = pack_record_header(other, 0, 5 * number, segment)
        data = record(number).data + head + other.data
        queue.append([Record(data, 5, 1)])
    (path,) = segments(bench.path)
    whole = path.read_bytes()
    for number in range(2):
        place = whole.index(record(number).data)
        path.write_bytes(flipped(path.read_bytes(), place, 0))
    assert numbers(drain(queue)) == [50]
    assert checked(queue).totals.dropped == {"corrupt": 9}


def test_d5_a_lost_record_is_counted_once_after_releases_and_restarts(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5)
    (path,) = segments(bench.path)
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, whole.index(put[2].data), 0))
    for restart in (False, True, False):
        assert queue.take(1 << 20) == tuple(put[:2])
        if restart:
            kill(queue)
            queue = bench.open()
        queue.release()
    queue.settle(2, acked=points(queue.take(1 << 20)))
    for _ in range(2):
        assert queue.take(1 << 20) == tuple(put[3:])
        assert checked(queue).totals.dropped == {"corrupt": put[2].points}
        kill(queue)
        queue = bench.open()
    totals = checked(queue).totals
    assert totals.dropped == {"corrupt": put[2].points}
    assert totals.appended == points(put)


def test_d5_the_points_of_a_corrupt_last_record_are_read_from_its_header(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 3)
    kill(queue)
    (path,) = segments(bench.path)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    queue = bench.open()
    assert checked(queue).totals.appended == points(put)
    put += fill(queue, 1, start=3)
    assert numbers(drain(queue)) == [0, 1, 3]
    assert checked(queue).totals.dropped == {"corrupt": put[2].points}


@pytest.mark.parametrize(
    ("span", "number"), [((0, 99), 0), ((1, 99), 1), ((3, 99), 2), ((0, 0), None), ((1, 2), None)]
)
def test_d5_records_outside_the_expected_positions_are_ignored(
    tmp_path: Path, span: tuple[int, int], number: int | None
) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    assert [one.points for one in fill(queue, 3)] == [1, 2, 3]
    file = SegmentFile(str(segments(bench.path)[0]), 1)
    found = find_record(file, 0, file.size, span, None)
    assert (found.header.number if found else None) == number
    file.close()


def test_d5_missing_bytes_within_a_record_lose_that_record(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5, size=200)
    queue.close()
    (path,) = segments(bench.path)
    whole = path.read_bytes()
    place = whole.index(put[2].data) + 50
    path.write_bytes(whole[:place] + whole[place + 30 :])
    assert numbers(drain(bench.open())) == [0, 1, 3, 4]


@pytest.mark.parametrize("cut", [1, 39, 41, 40 + RECORD_SIZE - 1])
def test_d3_a_torn_tail_is_cut_off(tmp_path: Path, cut: int) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5)
    kill(queue)
    (path,) = segments(bench.path)
    path.write_bytes(path.read_bytes()[:-cut])
    queue = bench.open()
    state = checked(queue)
    assert state.totals.appended == points(put[:4])
    assert not state.totals.dropped
    assert not state.faults
    fill(queue, 1, start=9)
    assert numbers(drain(queue)) == [0, 1, 2, 3, 9]


def test_d5_one_corrupt_slot_of_the_cursor_loses_nothing(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5)
    settle(queue, put[:3])
    kill(queue)
    cursor = bench.path / "cursor"
    whole = cursor.read_bytes()
    for slot in range(2):
        for place in range(0, 300, 7):
            cursor.write_bytes(flipped(whole, slot * 8192 + place, place % 8))
            queue = bench.open()
            state = checked(queue)
            assert state.totals.queued in (points(put[3:]), points(put[2:]))
            assert state.totals.appended == points(put)
            taken = queue.take(1 << 20)
            assert taken[-2:] == tuple(put[3:])
            assert len(taken) <= 3
            kill(queue)
