"""A folder contains what the queue reports, as read by an independent reader of its format."""

from pathlib import Path

from tests.pipeline.delivery.queue.folder_reader import read_folder
from tests.pipeline.delivery.queue.support import Bench, checked, fill, numbers, on_disk, points


def test_a_folder_contains_the_counts_and_records_that_the_queue_reports(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    path.mkdir()
    assert read_folder(path).totals.appended == 0
    queue = Bench("safe", path).open()
    put = fill(queue, 100, size=5000)
    taken = queue.take(200_000)
    assert len(taken) == 40
    queue.settle(40, acked=points(taken) - 5, rejected={"no": 5})
    found, state = read_folder(path), checked(queue)
    assert found.totals == state.totals
    assert found.bytes == state.bytes == on_disk(path)
    assert [number for number, _ in found.waiting] == numbers(put[40:])
    assert sum(points for _, points in found.waiting) == state.totals.queued
    queue.close()
    assert read_folder(path).totals == state.totals
