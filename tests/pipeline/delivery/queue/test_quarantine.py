"""D5, D10: tests of folders with missing, unreadable or other files."""

import random
from pathlib import Path

import pytest

from pipeline.delivery.queue.disk.record_format import SegmentHeader
from tests.pipeline.delivery.queue.corruption import folder
from tests.pipeline.delivery.queue.support import (
    checked,
    drain,
    fill,
    numbers,
    points,
    segments,
    subsequence,
)


def test_d5_without_a_valid_cursor_all_records_are_sent_again(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5)
    queue.take(80)
    queue.settle(2, acked=points(put[:2]))
    queue.close()
    (bench.path / "cursor").write_bytes(b"rubbish" * 5000)
    queue = bench.open()
    state = checked(queue)
    assert state.faults == {("cursor", "corrupt"): 1}
    assert state.totals.appended == state.recovered == points(put)
    assert "sent again" in state.notes[0]
    assert drain(queue) == put


def test_d10_a_segment_without_a_valid_header_is_moved_aside(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 30, size=5000)
    queue.close()
    paths = segments(bench.path)
    assert len(paths) == 3
    paths[1].write_bytes(random.Random(1).randbytes(len(paths[1].read_bytes())))
    queue = bench.open()
    state = checked(queue)
    assert state.faults == {("open", "quarantined"): 1}
    aside = bench.path / f"{paths[1].name}.corrupt-20231114T221320Z"
    assert aside.is_file()
    assert str(paths[1]) in state.notes[0]
    assert aside.name in state.notes[0]
    found = drain(queue)
    assert subsequence(numbers(found), numbers(put))
    assert len(found) == 18
    assert checked(queue).totals.dropped == {"corrupt": points(put) - points(found)}
    assert aside.is_file()


@pytest.mark.parametrize("number", [0, 3, 17])
def test_d10_a_segment_of_another_version_is_moved_aside(tmp_path: Path, number: int) -> None:
    bench = folder(tmp_path)
    bench.path.mkdir()
    path = bench.path / f"{number:020}.seg"
    path.write_bytes(SegmentHeader(2, number, 0, 0).pack() + b"what it says")
    queue = bench.open()
    assert checked(queue).faults == {("open", "quarantined"): 1}
    put = fill(queue, 3)
    queue.close()
    queue = bench.open()
    assert drain(queue) == put


def test_d10_a_cursor_that_is_not_a_file_is_moved_aside(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    (bench.path / "cursor").mkdir(parents=True)
    queue = bench.open()
    assert checked(queue).faults == {("open", "quarantined"): 1}
    put = fill(queue, 3)
    queue.close()
    assert drain(bench.open()) == put


def test_d10_the_newest_four_files_moved_aside_are_kept(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    for number in range(1, 8):
        bench.path.mkdir(exist_ok=True)
        (bench.path / f"{number:020}.seg").write_bytes(b"x")
        bench.open().close()
        bench.clock.pass_(1)
    aside = sorted(path.name for path in bench.path.glob("*corrupt*"))
    assert [int(name[:20]) for name in aside] == [4, 5, 6, 7]


def test_d10_files_of_other_programs_are_not_changed(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    bench.path.mkdir()
    names = ["notes.txt", "1.seg", "00000000000000000001.seg.bak", f"{'9' * 20}.seg"]
    for name in names:
        (bench.path / name).write_text("mine")
    (bench.path / f"{5:020}.seg").mkdir()
    (bench.path / f"{6:020}.seg").symlink_to("notes.txt")
    queue = bench.open()
    put = fill(queue, 3)
    assert drain(queue) == put
    queue.close()
    assert all((bench.path / name).read_text() == "mine" for name in names)
    assert (bench.path / f"{5:020}.seg").is_dir()
    assert (bench.path / f"{6:020}.seg").is_symlink()


def test_d4_a_segment_without_any_written_data_is_no_fault(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 3)
    queue.close()
    for number, data in ((7, b""), (8, bytes(10_000))):
        (bench.path / f"{number:020}.seg").write_bytes(data)
    queue = bench.open()
    assert not checked(queue).faults
    assert drain(queue) == put
    assert len(segments(bench.path)) == 1


def test_an_unfinished_segment_is_removed(tmp_path: Path) -> None:
    bench = folder(tmp_path)
    bench.path.mkdir()
    unfinished = bench.path / f"{3:020}.seg.tmp"
    unfinished.write_bytes(b"po")
    bench.open()
    assert not unfinished.exists()
