"""D7: tests of a disk with read errors."""

import errno
import os
from pathlib import Path

import pytest

from pipeline.delivery.contract import Record
from tests.pipeline.delivery.queue.failing_calls import failing, safe
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    numbers,
    points,
    segments,
)


class UnreadableDisk:
    """A disk that can't read some bytes of segments while `failing` is set.

    Args:
        span: first byte that can't be read, and the byte after the last one.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *span: int, error: int = errno.EIO) -> None:
        self._original = os.pread
        self._span = span
        self._error = error
        self.failing = True
        patch.setattr(os, "pread", self)

    def __call__(self, fd: int, size: int, place: int) -> bytes:
        first, end = self._span
        if (
            self.failing
            and place < end
            and place + size > first
            and os.readlink(f"/proc/self/fd/{fd}").endswith(".seg")  # noqa: PTH115 - faster
        ):
            raise OSError(self._error, os.strerror(self._error))
        return self._original(fd, size, place)


@pytest.mark.parametrize("kind", ["disk", "safe"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.ENOMEM])
@pytest.mark.parametrize("span", [(0, 1 << 20), (0, 10), (20_000, 20_001)])
def test_d7_temporary_read_errors_lose_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, error: int, span: tuple[int, int]
) -> None:
    bench = Bench(kind, tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    found = []
    for seconds in (1, 50, 59):  # the time of failures is counted from zero in each period
        disk = UnreadableDisk(monkeypatch, *span, error=error)
        for _ in range(seconds):
            found += drain(queue)
            assert not checked(queue).totals.dropped
            bench.clock.pass_(1)
        disk.failing = False
        taken = queue.take(1)
        queue.settle(len(taken), acked=points(taken))
        found += taken
    found += drain(queue)
    assert found == put
    assert not checked(queue).totals.dropped
    faults = checked(queue).faults
    assert {operation for operation, _ in faults} <= {"read"}
    assert faults or span == (0, 10)


def test_d7_read_errors_are_reported_once_and_when_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 3)
    disk = UnreadableDisk(monkeypatch, 0, 1 << 20)
    disk.failing = False
    notes = [*checked(queue).notes]
    for times in (1, 2):
        disk.failing = True
        for _ in range(20):
            assert queue.take(1) == ()
            state = checked(queue)
            notes += state.notes
            assert state.oldest_ns == put[times - 1].created_ns
            bench.clock.pass_(1)
        assert checked(queue).faults == {("read", "io_error"): 20 * times}
        disk.failing = False
        queue.settle(1, acked=points(queue.take(1)))
        notes += checked(queue).notes
    assert len(notes) == 4
    assert "cannot read" in notes[0]
    assert "cannot read" in notes[2]
    assert notes[1] == notes[3] == f"the queue in {bench.path} can be read again"


@pytest.mark.parametrize("later", [False, True], ids=["running", "opened-later"])
def test_d7_records_in_unreadable_blocks_are_given_up_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 10, size=5000)
    if later:
        queue.close()
    UnreadableDisk(monkeypatch, 23_000, 24_000)
    if later:
        queue = bench.open()
        assert not checked(queue).writable
    found: list[Record] = []
    seconds = 0
    while len(found) < 8 and seconds < 200:
        found += drain(queue)
        queue.maintain(bench.clock.pass_(1))
        seconds += 1
        if seconds < 60:
            assert not checked(queue).totals.dropped
    found += drain(queue)
    state = checked(queue)
    # Opening the folder takes another minute.
    assert 60 <= seconds <= 62 + 60 * later
    assert len(found) in (8, 9)
    assert found == [one for one in put if one in found]
    assert state.totals.dropped == {"corrupt": points(put) - points(found)}
    assert state.faults["read", "io_error"] >= 60
    assert state.totals.queued == 0
    assert not list(bench.path.glob("*.corrupt-*"))


def test_d7_an_unreadable_segment_loses_only_its_own_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    second = os.fspath(segments(bench.path)[1])
    original = os.open

    def failing_open(path: str | Path, *args: int, **kwargs: int) -> int:
        if os.fspath(path) == second:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", failing_open)
    found = []
    for _ in range(62):
        found += drain(queue)
        checked(queue)
        bench.clock.pass_(1)
    assert numbers(found) == [*range(12), *range(24, 40)]
    assert checked(queue).totals.dropped == {"corrupt": points(put) - points(found)}


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "lost"), [(1, False), (9, False), (11, True)])
def test_d7_an_unreadable_folder_is_retried_for_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, *, lost: bool
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    queue.close()
    disk = UnreadableDisk(monkeypatch, 0, 1 << 20)
    queue = bench.open()
    for _ in range(12 * minutes + 1):
        queue.maintain(bench.clock.pass_(5))
    disk.failing = False
    late = fill(queue, 1, start=40)
    queue.maintain(bench.clock.pass_(1))
    assert drain(queue) == ([] if lost else put) + late
    assert checked(queue).totals.dropped == ({"corrupt": points(put)} if lost else {})
    assert len(list(bench.path.glob("*.corrupt-*"))) == (4 if lost else 0)


def test_d7_time_without_reads_does_not_count_as_failing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 3)
    disk = UnreadableDisk(monkeypatch, 0, 1 << 20)
    assert queue.take(1) == ()
    bench.clock.pass_(3600)
    assert queue.take(1) == ()
    disk.failing = False
    assert drain(queue) == put


def test_records_that_cannot_be_read_now_stay_before_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 3)
    disk = failing(monkeypatch, "open", errno.EMFILE)
    written = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = written.on = True
    put += fill(queue, 3, start=3)
    assert queue.take(1 << 20) == ()
    assert checked(queue).totals.queued == points(put)
    disk.on = False
    assert drain(queue) == put
