"""D4: tests of power cuts."""

import random
from pathlib import Path

import pytest

from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.power_cut import Disk
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    drain,
    fill,
    kill,
    numbers,
    points,
    record,
    subsequence,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_d4_a_power_cut_loses_only_data_that_was_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    bench = Bench("disk", tmp_path / "queue", fsync=1)
    disk = Disk(bench.path, monkeypatch)
    queue = bench.open()
    appended: list[int] = []
    settled: list[int] = []
    flushed_appended: list[int] = []
    flushed_settled: list[int] = []
    for step in range(chance.randint(5, 60)):
        if chance.random() < 0.1:
            queue.close()  # and continue with the same folder
            queue = bench.open()
            flushed_appended, flushed_settled = appended.copy(), settled.copy()
        if chance.random() < 0.6:
            appended.append(step)
            queue.append([record(step, chance.choice([20, 5000, 40_000]))])
        else:
            taken = queue.take(60_000)
            count = chance.randint(0, len(taken))
            queue.settle(count, acked=points(taken[:count]))
            settled += numbers(taken[:count])
            queue.release()
        if chance.random() < 0.2:
            queue.maintain(bench.clock.pass_(1))
            flushed_appended, flushed_settled = appended.copy(), settled.copy()
    for cut in range(8):
        after = Bench("disk", tmp_path / f"after{cut}", fsync=1)
        disk.cut(after.path, chance)
        check_after_power_cut(after, appended, flushed_appended, settled, flushed_settled)
    kill(queue)


def check_after_power_cut(
    after: Bench,
    appended: list[int],
    flushed_appended: list[int],
    settled: list[int],
    flushed_settled: list[int],
) -> None:
    queue: MemoryQueue = after.open()
    state = checked(queue)
    assert not {operation for operation, _ in state.faults} - {"open"}
    put = fill(queue, 2, start=1000)
    found = numbers(drain(queue))
    totals = checked(queue).totals
    queue.close()
    assert found[-2:] == numbers(put)
    assert subsequence(found[:-2], appended)
    assert set(flushed_appended) - set(settled) <= set(found)
    assert not set(flushed_settled) & set(found)
    assert totals.queued == 0
    known = points(map(record, flushed_appended)) + points(put)
    assert known <= totals.appended <= points(map(record, appended)) + points(put)
    # Flushed or settled records are not reported as lost.
    unsure = points(map(record, set(appended) - set(flushed_appended)))
    assert sum(totals.dropped.values()) <= unsure


def test_d4_the_fake_disk_loses_data_that_was_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue", fsync=1)
    disk = Disk(bench.path, monkeypatch)
    queue = bench.open()
    fill(queue, 20, size=5000)
    queue.maintain(bench.clock.pass_(1))
    fill(queue, 20, size=5000, start=20)
    chance = random.Random(1)
    left = set()
    for cut in range(20):
        after = Bench("disk", tmp_path / f"after{cut}")
        disk.cut(after.path, chance)
        found = numbers(drain(after.open()))
        assert found[:20] == list(range(20))
        left.add(len(found))
    assert min(left) < 40
    assert len(left) > 3


def test_d4_without_fsync_a_power_cut_loses_records_but_the_queue_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    disk = Disk(bench.path, monkeypatch)
    queue = bench.open()
    fill(queue, 60, size=5000)
    queue.settle(10, acked=points(queue.take(50_000)))
    chance = random.Random(1)
    for cut in range(20):
        after = Bench("disk", tmp_path / f"after{cut}")
        disk.cut(after.path, chance)
        again = after.open()
        assert subsequence(numbers(drain(again)), list(range(60)))
        checked(again)
        put = fill(again, 2, start=100)
        assert drain(again) == put
