"""A disk that takes nothing, or doesn't flush: D6 and D7."""

import contextlib
import errno
import json
import os
from pathlib import Path

import pytest

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.safe import SafeQueue
from tests.pipeline.delivery.queue.support import (
    Bench,
    Failing,
    checked,
    drain,
    fill,
    numbers,
    points,
    record,
    segments,
)
from tests.support.mounts import MAY_MOUNT, beside

REASONS = [
    (errno.ENOSPC, "no_space"),
    (errno.EDQUOT, "no_space"),
    (errno.EFBIG, "no_space"),
    (errno.EIO, "io_error"),
    (errno.EROFS, "read_only"),
    (errno.EACCES, "permission"),
    (errno.ENOMEM, "other"),
]
# `open` is where inodes run out.
CALLS = ["pwritev", "open", "rename"]


def failing(patch: pytest.MonkeyPatch, name: str, error: int) -> Failing:
    call = Failing(getattr(os, name), error)
    patch.setattr(os, name, call)
    return call


def safe(tmp_path: Path, **kwargs: float) -> Bench:
    return Bench("safe", tmp_path / "queue", **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "reason"), REASONS)
@pytest.mark.parametrize("call", CALLS)
def test_d6_d7_data_waits_in_memory_while_the_disk_takes_none(
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
    assert state.notes == (f"the queue in {bench.path} is written to the disk again",)
    queue.close()
    again = bench.open()
    assert drain(again) == put


def test_d6_a_disk_that_stays_full_is_told_once_and_asked_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    fill(queue, 1)
    for _ in range(50):
        fill(queue, 10)
        bench.clock.pass_(0.1)
        queue.tend(bench.clock.mono_ns)
    assert 5 <= disk.tries <= 7
    state = checked(queue)
    assert len(state.notes) == 1
    assert checked(queue).notes == ()


def test_d6_memory_that_is_full_costs_its_oldest_for_the_disks_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path, memory=100_000)
    queue = bench.open()
    put = fill(queue, 2, size=30_000)
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    late = fill(queue, 6, size=30_000, start=2)
    late += [record(8, 100_001), record(9, 10_000)]
    queue.append(late[-2:])
    totals = checked(queue).totals
    lost = late[:3] + late[6:7]
    assert totals.dropped == {"no_space": points(lost)}
    assert numbers(drain(queue, 30_000)) == [0, 1, 5, 6, 7, 9]
    totals = checked(queue).totals
    assert totals.acked == points(put + late) - points(lost)
    disk.on = False
    queue.tend(bench.clock.pass_(1))
    queue.close()
    again = checked(bench.open()).totals
    assert again == totals


@pytest.mark.parametrize("settled", [0, 1, 3])
def test_d6_what_is_in_flight_from_memory_moves_to_the_disk_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: int
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    disk = failing(monkeypatch, "pwritev", errno.EIO)
    disk.on = True
    put = fill(queue, 6)
    taken = queue.take(120)
    assert taken == tuple(put[:3])
    disk.on = False
    queue.tend(bench.clock.pass_(1))
    put += fill(queue, 2, start=6)
    assert isinstance(queue, SafeQueue)
    assert not queue._memory
    assert checked(queue).totals.queued == points(put)
    queue.settle(settled, acked=points(put[:settled]))
    queue.release()
    assert checked(queue).totals.queued == points(put[settled:])
    assert drain(queue) == put[settled:]


@pytest.mark.parametrize("moved", range(7))
def test_d6_a_disk_that_fills_again_at_once_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    put = fill(queue, 6)
    queue.take(120)
    disk.tries, disk.after = 0, moved + 1  # a segment's header is one more
    queue.tend(bench.clock.pass_(1))
    assert checked(queue).writable == (moved == 6)
    assert checked(queue).totals.queued == points(put)
    queue.settle(2, acked=points(put[:2]))
    queue.release()
    put += fill(queue, 2, start=6)
    assert drain(queue, 100) == put[2:]
    assert checked(queue).totals.queued == 0


def test_d6_closing_drops_what_no_disk_took_and_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    put = fill(queue, 2)
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    late = fill(queue, 3, start=2)
    queue.close()
    totals = checked(queue).totals
    assert totals.dropped == {"shutdown": points(late)}
    assert totals.queued == points(put)
    disk.on = False
    again = bench.open()
    assert checked(again).totals == totals
    assert drain(again) == put


def test_d6_closing_moves_memory_to_a_disk_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    put = fill(queue, 3)
    queue.take(50)
    disk.on = False
    queue.close()
    assert drain(bench.open()) == put


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EIO])
def test_d7_a_folder_that_can_not_be_had_yet_is_opened_later(
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
    queue.tend(bench.clock.pass_(1))
    state = checked(queue)
    assert state.recovered == points(old[1:])
    assert state.earlier is not None
    assert (state.earlier.appended, state.earlier.acked) == (old[0].points, old[0].points)
    assert state.totals.appended == points(old + put)
    assert state.totals.acked == old[0].points
    # What is in flight came before it was known that there is something older.
    queue.settle(1, acked=put[0].points)
    queue.release()
    queue.tend(bench.clock.pass_(1))
    assert checked(queue).writable
    assert drain(queue) == old[1:] + put[1:]
    assert checked(queue).totals.acked == points(old + put)


def test_d7_a_write_that_failed_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 2)
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at: whole(fd, [data[0][:20]], at))
    disk = failing(monkeypatch, "pwrite", errno.ENOSPC)
    disk.on = True
    size = segments(bench.path)[0].stat().st_size
    fill(queue, 1, start=2)
    assert segments(bench.path)[0].stat().st_size == size
    cut = failing(monkeypatch, "ftruncate", errno.EIO)
    cut.on = True
    fill(queue, 1, start=3)
    disk.on = cut.on = False
    monkeypatch.setattr(os, "pwritev", whole)
    put += fill(queue, 2, start=4)
    assert len(segments(bench.path)) == 2
    assert checked(queue).totals.dropped == {"no_space": points([record(2), record(3)])}
    queue.close()
    again = bench.open()
    assert drain(again) == put
    assert set(checked(again).totals.dropped) == {"no_space"}


def test_d7_a_fault_of_flushing_costs_two_segments_and_not_one_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue", fsync=1)
    queue = bench.open()
    put = fill(queue, 1)
    disk = failing(monkeypatch, "fsync", errno.EIO)
    disk.on = True
    for number in range(1, 30):
        queue.tend(bench.clock.pass_(1))
        put += fill(queue, 1, start=number)
    assert len(segments(bench.path)) == 2
    state = checked(queue)
    assert state.faults["fsync", "io_error"] >= 29
    assert len(state.notes) == 1
    disk.on = False
    for number in range(30, 33):
        queue.tend(bench.clock.pass_(1))
        put += fill(queue, 1, start=number)
    assert len(segments(bench.path)) == 3
    assert checked(queue).notes == (f"{bench.path} is flushed to the disk again",)
    assert drain(queue) == put


def test_it_flushes_as_often_as_it_is_told_and_only_what_is_new(
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
        queue.tend(bench.clock.pass_(1))
        counts.append(disk.tries)
    assert counts == [2, 2, 4, 4, 6, 6, 6, 6]


def test_d7_a_cursor_that_can_not_be_written_is_a_fault_and_no_more(
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


def test_d7_a_segment_that_can_not_be_removed_keeps_its_room(
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
    queue.tend(bench.clock.pass_(1))
    assert f"segments in {bench.path} are removed again" in checked(queue).notes
    left = drain(queue)
    assert left == put[-len(left) :]
    assert len(left) == 10
    disk.on = True
    fill(queue, 5, size=100_000, start=15)
    assert "cannot remove" in checked(queue).notes[0]


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


def test_d7_a_disk_that_can_not_be_read_is_told_of_once_and_when_it_is_well(
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
            assert state.oldest_ns == put[times - 1].made_ns
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
        queue.tend(bench.clock.pass_(1))
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
        queue.tend(bench.clock.pass_(1))
    disk.sick = False
    late = fill(queue, 1, start=40)
    queue.tend(bench.clock.pass_(1))
    assert drain(queue) == ([] if costs else put) + late
    assert checked(queue).totals.dropped == ({"corrupt": points(put)} if costs else {})
    assert len(list(bench.path.glob("*.corrupt-*"))) == (4 if costs else 0)


def test_d7_no_minute_passes_while_nobody_reads(
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


def open_files() -> list[str]:
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(one.readlink()))
    return found


class SmallDisk:
    """A disk on which segments have so much room.

    Args:
        folder: where they are.
        room: bytes.
    """

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, room: int) -> None:
        self._whole = os.pwritev
        self._folder = folder
        self.room = room
        patch.setattr(os, "pwritev", self)

    def __call__(self, fd: int, pieces: list[bytes], place: int) -> int:
        taken = sum(file.stat().st_size for file in self._folder.glob("*.seg*"))
        if taken + sum(map(len, pieces)) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._whole(fd, pieces, place)


@pytest.mark.parametrize("restart", [False, True])
def test_d6_what_is_done_with_gives_its_room_back_on_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restart: bool
) -> None:
    """One segment may have 64 KiB, and the disk has room for 50,000 bytes."""
    bench = safe(tmp_path)
    SmallDisk(monkeypatch, bench.path, 50_000)
    queue = bench.open()
    for number in range(40):
        put = fill(queue, 1, size=20_000, start=number)
        state = checked(queue)
        # A file that is removed takes room as long as it is open.
        assert not [one for one in open_files() if one.endswith(".seg (deleted)")]
        assert state.writable
        assert not state.faults
        assert drain(queue) == put
        if restart:
            queue.close()
            queue = bench.open()
    state = checked(queue)
    assert not state.totals.dropped
    assert state.bytes == sum(file.stat().st_size for file in segments(bench.path))


def test_d6_what_waits_keeps_its_room_on_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    SmallDisk(monkeypatch, bench.path, 50_000)
    queue = bench.open()
    put = fill(queue, 4, size=20_000)
    assert not checked(queue).writable
    taken = queue.take(40_000)
    queue.tend(bench.clock.pass_(1))
    assert not checked(queue).writable
    queue.settle(1, acked=points(taken[:1]))
    queue.release()
    assert queue.take(20_000) == (put[1],)
    queue.settle(1, acked=points(put[1:2]))
    queue.tend(bench.clock.pass_(1))
    assert checked(queue).writable
    assert drain(queue) == put[2:]
    assert not checked(queue).totals.dropped


def test_d6_a_disk_that_stays_full_says_so_once_though_memory_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    put: list[Record] = []
    found: list[Record] = []
    notes: list[str] = []
    for number in range(60):
        put += fill(queue, 1, start=number)
        found += drain(queue)
        queue.tend(bench.clock.pass_(1))
        state = checked(queue)
        assert not state.writable
        notes += state.notes
    assert found == put
    assert len(notes) == 1
    disk.on = False
    fill(queue, 1)
    assert checked(queue).writable


def test_a_process_without_descriptors_loses_nothing(
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


TMPFS = """
import json, subprocess, sys
from pathlib import Path
from tests.pipeline.delivery.queue.support import *
from tests.pipeline.delivery.queue.support import Bench, checked, drain, fill, numbers

path = Path(sys.argv[1])
how = sys.argv[2]
bench = Bench("safe", path / "queue", fsync=1, max_size=4 << 20)
queue = bench.open()
blocks = []

def fault(on):
    if how == "space":
        if on:
            (path / "big").write_bytes(b"")
            with (path / "big").open("ab", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
        else:
            (path / "big").unlink()
    elif how == "inodes":
        if on:
            try:
                for number in range(10_000):
                    (path / f"i{number}").touch()
            except OSError:
                pass
        else:
            for one in path.glob("i*"):
                one.unlink()
    else:
        options = "remount,ro" if on else "remount,rw"
        subprocess.run(["mount", "-o", options, path], check=False)

put = fill(queue, 3, 100_000)
fault(True)
for number in range(3, 12):
    put += fill(queue, 1, 100_000, number)
    queue.tend(bench.clock.pass_(1))
during = checked(queue)
fault(False)
queue.tend(bench.clock.pass_(1))
after = checked(queue)
same = drain(queue) == put
queue.close()
print(json.dumps([during.writable, [list(key) for key in during.faults], after.writable, same,
                  dict(after.totals.dropped)]))
"""


@MAY_MOUNT
@pytest.mark.parametrize(("how", "reason"), [("space", "no_space"), ("inodes", "no_space")])
async def test_d6_d7_a_file_system_that_is_really_full_loses_nothing(
    tmp_path: Path, how: str, reason: str
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounts = f"mount -t tmpfs -o size=2m,nr_inodes=40 queue {folder}"
    program = TMPFS.replace("sys.argv[1]", repr(str(folder))).replace("sys.argv[2]", repr(how))
    async with beside(mounts, program) as process:
        out, errors = await process.communicate()
    assert not errors.decode()
    writable, faults, later, same, dropped = json.loads(out)
    assert not writable
    assert ["write", reason] in faults
    assert later
    assert same
    assert not dropped
