"""A disk that can't read what it has: D7."""

import errno
import os
from pathlib import Path

import pytest

from pipeline.delivery.contract import Record
from tests.pipeline.delivery.queue.failing import failing, safe
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    numbers,
    points,
    segments,
)


class SickDisk:
    """A disk that can't read some bytes of segments, as long as it is sick.

    Args:
        span: from which byte to which.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *span: int, error: int = errno.EIO) -> None:
        self._whole = os.pread
        self._span = span
        self._error = error
        self.sick = True
        patch.setattr(os, "pread", self)

    def __call__(self, fd: int, size: int, place: int) -> bytes:
        first, end = self._span
        segment = Path(f"/proc/self/fd/{fd}").readlink().suffix == ".seg"
        if self.sick and segment and place < end and place + size > first:
            raise OSError(self._error, os.strerror(self._error))
        return self._whole(fd, size, place)


@pytest.mark.parametrize("kind", ["disk", "safe"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.ENOMEM])
@pytest.mark.parametrize("span", [(0, 1 << 20), (0, 10), (20_000, 20_001)])
def test_d7_what_can_not_be_read_for_a_while_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, error: int, span: tuple[int, int]
) -> None:
    bench = Bench(kind, tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    found = []
    for seconds in (1, 50, 59):  # each of them begins anew
        disk = SickDisk(monkeypatch, *span, error=error)
        for _ in range(seconds):
            found += drain(queue)
            assert not checked(queue).totals.dropped
            bench.clock.pass_(1)
        disk.sick = False
        taken = queue.take(1)
        queue.settle(len(taken), acked=points(taken))
        found += taken
    found += drain(queue)
    assert found == put
    assert not checked(queue).totals.dropped
    faults = checked(queue).faults
    assert {operation for operation, _ in faults} <= {"read"}
    assert faults or span == (0, 10)


def test_d7_a_disk_that_can_not_be_read_is_reported_of_once_and_when_it_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 3)
    disk = SickDisk(monkeypatch, 0, 1 << 20)
    disk.sick = False
    notes = [*checked(queue).notes]
    for times in (1, 2):
        disk.sick = True
        for _ in range(20):
            assert queue.take(1) == ()
            state = checked(queue)
            notes += state.notes
            assert state.oldest_ns == put[times - 1].created_ns
            bench.clock.pass_(1)
        assert checked(queue).faults == {("read", "io_error"): 20 * times}
        disk.sick = False
        queue.settle(1, acked=points(queue.take(1)))
        notes += checked(queue).notes
    assert len(notes) == 4
    assert "cannot read" in notes[0]
    assert "cannot read" in notes[2]
    assert notes[1] == notes[3] == f"the queue in {bench.path} can be read again"


@pytest.mark.parametrize("later", [False, True], ids=["running", "opened-later"])
def test_d7_blocks_that_stay_unreadable_cost_the_records_in_them_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 10, size=5000)
    if later:
        queue.close()
    SickDisk(monkeypatch, 23_000, 24_000)
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
    # To open the folder takes a minute, too, and shows that it is no whim.
    assert 60 <= seconds <= 62 + 60 * later
    assert len(found) in (8, 9)
    assert found == [one for one in put if one in found]
    assert state.totals.dropped == {"corrupt": points(put) - points(found)}
    assert state.faults["read", "io_error"] >= 60
    assert state.totals.queued == 0
    assert not list(bench.path.glob("*.corrupt-*"))


def test_d7_a_segment_that_stays_unreadable_costs_its_own_records_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    second = os.fspath(segments(bench.path)[1])
    whole = os.open

    def sick(path: str | Path, *args: int, **kwargs: int) -> int:
        if os.fspath(path) == second:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", sick)
    found = []
    for _ in range(62):
        found += drain(queue)
        checked(queue)
        bench.clock.pass_(1)
    assert numbers(found) == [*range(12), *range(24, 40)]
    assert checked(queue).totals.dropped == {"corrupt": points(put) - points(found)}


@pytest.mark.parametrize(("minutes", "costs"), [(1, False), (9, False), (11, True)])
def test_d7_a_folder_of_which_nothing_can_be_read_is_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, *, costs: bool
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 40, size=5000)
    queue.close()
    disk = SickDisk(monkeypatch, 0, 1 << 20)
    queue = bench.open()
    for _ in range(60 * minutes + 5):
        queue.maintain(bench.clock.pass_(1))
    disk.sick = False
    late = fill(queue, 1, start=40)
    queue.maintain(bench.clock.pass_(1))
    assert drain(queue) == ([] if costs else put) + late
    assert checked(queue).totals.dropped == ({"corrupt": points(put)} if costs else {})
    assert len(list(bench.path.glob("*.corrupt-*"))) == (4 if costs else 0)


def test_d7_no_minute_passes_while_no_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 3)
    disk = SickDisk(monkeypatch, 0, 1 << 20)
    assert queue.take(1) == ()
    bench.clock.pass_(3600)
    assert queue.take(1) == ()
    disk.sick = False
    assert drain(queue) == put


def test_what_can_not_be_read_just_now_stays_before_what_is_in_memory(
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
