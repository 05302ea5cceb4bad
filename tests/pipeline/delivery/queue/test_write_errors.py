"""D6, D7: tests of a disk that can't be written or flushed."""

import errno
import os
from pathlib import Path

import pytest

from tests.pipeline.delivery.queue.failing_calls import failing, safe
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    points,
    record,
    segments,
)

REASONS = [
    (errno.ENOSPC, "no_space"),
    (errno.EDQUOT, "no_space"),
    (errno.EFBIG, "no_space"),
    (errno.EIO, "io_error"),
    (errno.EROFS, "read_only"),
    (errno.EACCES, "permission"),
    (errno.ENOMEM, "other"),
]


# `open` fails if no inodes are left.
CALLS = ["pwritev", "open", "rename"]


@pytest.mark.parametrize(("error", "reason"), REASONS)
@pytest.mark.parametrize("call", CALLS)
def test_d6_d7_records_wait_in_memory_while_the_disk_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int, reason: str
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 3, size=30_000)
    disk = failing(monkeypatch, call, error)
    disk.on = True
    put += fill(queue, 5, size=40_000, start=3)
    state = checked(queue)
    assert not state.writable
    assert state.faults == {("write", reason): 1}
    (note,) = state.notes
    assert os.strerror(error) in note
    assert str(bench.path) in note
    assert state.totals.queued == points(put)
    assert not state.totals.dropped

    disk.on = False
    put += fill(queue, 1, start=8)
    assert not checked(queue).writable
    bench.clock.pass_(1)
    put += fill(queue, 1, start=9)
    state = checked(queue)
    assert state.writable
    assert state.notes == (f"the queue in {bench.path} can be written again",)
    queue.close()
    again = bench.open()
    assert drain(again) == put


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EIO])
def test_d7_a_folder_that_cannot_be_opened_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    old = fill(queue, 3)
    queue.settle(1, acked=points(queue.take(1)))
    queue.close()
    disk = failing(monkeypatch, "open", error)
    disk.on = True
    queue = bench.open()
    put = fill(queue, 4, start=3)
    taken = queue.take(80)
    assert taken == tuple(put[:2])
    disk.on = False
    queue.maintain(bench.clock.pass_(1))
    state = checked(queue)
    assert state.recovered == points(old[1:])
    assert state.previous is not None
    assert (state.previous.appended, state.previous.acked) == (old[0].points, old[0].points)
    assert state.totals.appended == points(old + put)
    assert state.totals.acked == old[0].points
    # These records were taken before it was known that the folder has older ones.
    queue.settle(1, acked=put[0].points)
    queue.release()
    queue.maintain(bench.clock.pass_(1))
    assert checked(queue).writable
    assert drain(queue) == old[1:] + put[1:]
    assert checked(queue).totals.acked == points(old + put)


def test_d7_a_write_that_fails_halfway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 2)
    original = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at: original(fd, [data[0][:20]], at))
    disk = failing(monkeypatch, "pwrite", errno.ENOSPC)
    disk.on = True
    size = segments(bench.path)[0].stat().st_size
    fill(queue, 1, start=2)
    assert segments(bench.path)[0].stat().st_size == size
    cut = failing(monkeypatch, "ftruncate", errno.EIO)
    cut.on = True
    fill(queue, 1, start=3)
    disk.on = cut.on = False
    monkeypatch.setattr(os, "pwritev", original)
    put += fill(queue, 2, start=4)
    assert len(segments(bench.path)) == 2
    assert checked(queue).totals.dropped == {"no_space": points([record(2), record(3)])}
    queue.close()
    again = bench.open()
    assert drain(again) == put
    assert set(checked(again).totals.dropped) == {"no_space"}


def test_d7_repeated_failures_of_fsync_start_only_one_new_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue", fsync=1)
    queue = bench.open()
    put = fill(queue, 1)
    disk = failing(monkeypatch, "fsync", errno.EIO)
    disk.on = True
    for number in range(1, 30):
        queue.maintain(bench.clock.pass_(1))
        put += fill(queue, 1, start=number)
    assert len(segments(bench.path)) == 2
    state = checked(queue)
    assert state.faults["fsync", "io_error"] >= 29
    assert len(state.notes) == 1
    disk.on = False
    for number in range(30, 33):
        queue.maintain(bench.clock.pass_(1))
        put += fill(queue, 1, start=number)
    assert len(segments(bench.path)) == 3
    assert checked(queue).notes == (f"{bench.path} can be flushed to the disk again",)
    assert drain(queue) == put


def test_new_data_is_flushed_once_per_fsync_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue", fsync=2)
    queue = bench.open()
    fill(queue, 1)
    disk = failing(monkeypatch, "fsync", errno.EIO)
    disk.on, disk.after = True, 10**9
    counts = []
    for step in range(8):
        if step < 5:
            fill(queue, 1)
        queue.maintain(bench.clock.pass_(1))
        counts.append(disk.tries)
    assert counts == [2, 2, 4, 4, 6, 6, 6, 6]


def test_d7_a_cursor_that_cannot_be_written_is_reported_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 3)
    disk = failing(monkeypatch, "pwrite", errno.EIO)
    disk.on = True
    queue.settle(1, acked=points(queue.take(1)))
    queue.settle(1, acked=points(queue.take(1)))
    state = checked(queue)
    assert state.faults == {("cursor", "io_error"): 2}
    assert len(state.notes) == 1
    disk.on = False
    assert drain(queue) == put[2:]
    assert len(checked(queue).notes) == 1
    queue.close()
    assert checked(bench.open()).totals.acked == points(put)


def test_d7_a_segment_that_cannot_be_removed_still_counts_as_used_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 10, size=100_000)
    disk = failing(monkeypatch, "unlink", errno.EACCES)
    disk.on = True
    put += fill(queue, 5, size=100_000, start=10)
    state = checked(queue)
    assert not state.writable
    assert state.totals.dropped == {"queue_over_size": put[0].points}
    assert ("remove", "permission") in state.faults
    disk.on = False
    queue.maintain(bench.clock.pass_(1))
    assert f"segments in {bench.path} can be removed again" in checked(queue).notes
    left = drain(queue)
    assert left == put[-len(left) :]
    assert len(left) == 10
    disk.on = True
    fill(queue, 5, size=100_000, start=15)
    assert "cannot remove" in checked(queue).notes[0]


def test_without_free_descriptors_no_record_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 10, size=5000)
    disk = failing(monkeypatch, "open", errno.EMFILE)
    disk.on = True
    assert queue.take(1) == ()
    assert checked(queue).faults == {("read", "other"): 1}
    disk.on = False
    assert drain(queue) == put
