"""D8, D9: tests of folders that other programs remove, replace or use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.delivery.queue.disk.folder import LockedError, OwnLockError
from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    kill,
    numbers,
    points,
    segments,
)


@pytest.fixture(params=["disk", "safe"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path / "queue")


def reopened(bench: Bench, queue: MemoryQueue) -> MemoryQueue:
    """Return the queue after a restart, which must not change its totals."""
    totals = checked(queue).totals
    queue.close()
    queue = bench.open()
    assert checked(queue).totals == totals
    return queue


@pytest.mark.parametrize("in_flight", [0, 3])
def test_d8_a_removed_folder_is_created_again(bench: Bench, in_flight: int) -> None:
    queue = bench.open()
    put = fill(queue, 30, size=5000)
    taken = queue.take(5000 * in_flight) if in_flight else ()
    shutil.rmtree(bench.path)
    later = fill(queue, 3, start=30)
    state = checked(queue)
    lost = put[in_flight:]
    assert state.totals.dropped == {"removed": points(lost)}
    assert state.totals.queued == points([*taken, *later])
    assert any(str(bench.path) in note and "removed" in note for note in state.notes)
    assert state.writable
    if taken:
        queue.settle(1, acked=taken[0].points)
        queue.release()
        lost += put[1:in_flight]
    assert checked(queue).totals.dropped == {"removed": points(lost)}
    queue = reopened(bench, queue)
    assert drain(queue) == later


def test_d8_a_folder_whose_files_were_removed_is_still_used(bench: Bench) -> None:
    queue = bench.open()
    put = fill(queue, 30, size=5000)
    for path in bench.path.iterdir():
        path.unlink()
    later = fill(queue, 3, start=30)
    assert checked(queue).totals.dropped == {"removed": points(put)}
    with pytest.raises(LockedError):
        bench.open()
    queue = reopened(bench, queue)
    assert drain(queue) == later


@pytest.mark.parametrize("name", ["lock", "cursor"])
def test_d8_a_removed_lock_or_cursor_is_created_again(bench: Bench, name: str) -> None:
    queue = bench.open()
    put = fill(queue, 3)
    queue.settle(1, acked=points(queue.take(1)))
    (bench.path / name).unlink()
    put += fill(queue, 1, start=3)
    assert (bench.path / name).exists()
    with pytest.raises(LockedError):
        bench.open()
    assert not checked(queue).totals.dropped
    kill(queue)
    queue = bench.open()
    assert checked(queue).totals.acked == put[0].points
    assert drain(queue) == put[1:]


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_d8_the_last_segment_can_be_removed_or_replaced(
    bench: Bench, *, in_flight: bool, replaced: bool
) -> None:
    queue = bench.open()
    put = fill(queue, 30, size=5000)
    taken = queue.take(10_000) if in_flight else ()
    last = segments(bench.path)[-1]
    last.unlink()
    if replaced:
        last.write_text("mine")
    later = fill(queue, 3, start=30)
    if replaced:
        assert [path.read_text() for path in bench.path.glob("*corrupt*")] == ["mine"]
    queue.settle(len(taken), acked=points(taken))
    found = drain(queue)
    assert [*taken, *found] == put[:24] + later
    totals = checked(queue).totals
    assert totals.dropped == {"removed": points(put[24:])}
    assert totals.queued == 0
    reopened(bench, queue)


def test_d8_any_segment_can_be_removed(bench: Bench) -> None:
    for index in range(5):
        queue = bench.open()
        put = fill(queue, 50, size=5000)
        segments(bench.path)[index].unlink()
        before = sum(checked(queue).totals.dropped.values())
        found = drain(queue)
        assert len(found) in (38, 39, 48)
        dropped = sum(checked(queue).totals.dropped.values()) - before
        assert dropped == points(put) - points(found)
        queue.close()
        shutil.rmtree(bench.path)


def test_d8_a_folder_that_replaces_the_queue_is_used(bench: Bench, tmp_path: Path) -> None:
    other = Bench(bench.kind, tmp_path / "other")
    queue = other.open()
    there = fill(queue, 5, start=100)
    queue.settle(2, acked=points(queue.take(80)))
    queue.close()
    queue = bench.open()
    put = fill(queue, 4)
    bench.path.rename(tmp_path / "gone")
    other.path.rename(bench.path)
    put += fill(queue, 1, start=4)
    state = checked(queue)
    assert state.recovered == points(there[2:])
    assert state.totals.dropped == {"removed": points(put[:4])}
    assert state.totals.appended == points(put) + points(there[2:])
    queue = reopened(bench, queue)
    assert drain(queue) == there[2:] + put[4:]


def test_d8_records_stay_in_memory_if_the_folder_cannot_be_created_again(tmp_path: Path) -> None:
    bench = Bench("safe", tmp_path / "parent" / "queue")
    queue = bench.open()
    put = fill(queue, 3)
    shutil.rmtree(tmp_path / "parent")
    (tmp_path / "parent").write_text("a file")
    late = fill(queue, 3, start=3)
    state = checked(queue)
    assert not state.writable
    assert state.totals.dropped == {"removed": points(put)}
    assert state.totals.queued == points(late)
    (tmp_path / "parent").unlink()
    queue.maintain(bench.clock.pass_(1))
    assert checked(queue).writable
    assert drain(reopened(bench, queue)) == late


def test_d9_a_second_queue_in_the_same_process_is_refused(bench: Bench) -> None:
    first = bench.open()
    put = fill(first, 3)
    with pytest.raises(OwnLockError, match=f"in use by process {os.getpid()}"):
        bench.open()
    assert drain(first) == put
    first.close()
    bench.open().close()


@pytest.mark.slow
def test_d9_the_lock_of_a_killed_process_is_free(bench: Bench) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from tests.pipeline.delivery.queue.support import Bench, fill
queue = Bench(sys.argv[1], Path(sys.argv[2])).open()
fill(queue, 3)
print("locked", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, bench.kind, bench.path],
        cwd=Path(__file__).parents[4], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(LockedError, match=str(process.pid)):
            bench.open()
        process.kill()
    assert (bench.path / "lock").read_text() == f"{process.pid}\n"
    assert numbers(drain(bench.open())) == [0, 1, 2]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"1" * 1000])
def test_d9_the_content_of_the_lock_file_does_not_matter(bench: Bench, content: bytes) -> None:
    first = bench.open()
    (bench.path / "lock").write_bytes(content)
    with pytest.raises(LockedError, match="in use by"):
        bench.open()
    first.close()
    bench.open()
