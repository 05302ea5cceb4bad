"""D6: tests of a disk that is full for some time, and of records that wait in memory."""

import errno
from pathlib import Path

import pytest

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from tests.pipeline.delivery.queue.failing_calls import failing, safe
from tests.pipeline.delivery.queue.support import checked, drain, fill, numbers, points, record


def test_d6_a_full_disk_is_reported_once_and_retried_once_a_second(
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
        queue.maintain(bench.clock.mono_ns)
    assert 5 <= disk.tries <= 7
    state = checked(queue)
    assert len(state.notes) == 1
    assert checked(queue).notes == ()


def test_d6_full_memory_drops_its_oldest_records_with_the_reason_of_the_disk(
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
    queue.maintain(bench.clock.pass_(1))
    queue.close()
    again = checked(bench.open()).totals
    assert again == totals


@pytest.mark.parametrize("settled", [0, 1, 3])
def test_d6_records_in_flight_from_memory_are_moved_to_the_disk_too(
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
    queue.maintain(bench.clock.pass_(1))
    put += fill(queue, 2, start=6)
    assert isinstance(queue, FallbackQueue)
    assert not queue._taken
    assert not queue._waiting
    assert checked(queue).totals.queued == points(put)
    queue.settle(settled, acked=points(put[:settled]))
    queue.release()
    assert checked(queue).totals.queued == points(put[settled:])
    assert drain(queue) == put[settled:]


@pytest.mark.parametrize("moved", range(7))
def test_d6_the_order_is_kept_if_the_disk_is_full_again_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    bench = safe(tmp_path)
    queue = bench.open()
    disk = failing(monkeypatch, "pwritev", errno.ENOSPC)
    disk.on = True
    put = fill(queue, 6)
    queue.take(120)
    disk.tries, disk.after = 0, moved + 1  # a segment's header is one more
    queue.maintain(bench.clock.pass_(1))
    assert checked(queue).writable == (moved == 6)
    assert checked(queue).totals.queued == points(put)
    queue.settle(2, acked=points(put[:2]))
    queue.release()
    put += fill(queue, 2, start=6)
    assert drain(queue, 100) == put[2:]
    assert checked(queue).totals.queued == 0


def test_d6_closing_drops_and_counts_records_that_could_not_be_written(
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


def test_d6_closing_moves_records_from_memory_to_a_disk_that_works(
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


def test_d6_a_full_disk_is_reported_once_although_records_in_memory_are_sent(
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
        queue.maintain(bench.clock.pass_(1))
        state = checked(queue)
        assert not state.writable
        notes += state.notes
    assert found == put
    assert len(notes) == 1
    disk.on = False
    fill(queue, 1)
    assert checked(queue).writable
