"""From options to a queue, and looking at one from outside."""

import os
from pathlib import Path

import pytest

from config.types import ByteSize, Duration
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.memory import MemoryQueue
from pipeline.delivery.queue.opening import inspect, open_queue
from pipeline.delivery.queue.safe import SafeQueue
from pipeline.errors import PermanentError
from tests.pipeline.delivery.queue.support import Clock, checked, drain, fill, on_disk, points

NOW = Clock().now


def test_without_a_path_it_is_in_memory() -> None:
    assert isinstance(open_queue(QueueOptions(), NOW), MemoryQueue)


def test_with_a_path_it_is_on_the_disk_and_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down"
    queue = open_queue(QueueOptions(path=path), NOW)
    assert isinstance(queue, SafeQueue)
    assert path.stat().st_mode & 0o777 == 0o700
    fill(queue, 1)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


def test_the_options_are_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = QueueOptions(
        path=tmp_path / "queue", max_size=ByteSize.parse("1MiB"), fsync=Duration.parse("0s")
    )
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("flushed"))
    queue = open_queue(options, NOW)
    fill(queue, 30, size=100_000)
    queue.tend(10**18)
    assert 0 < on_disk(tmp_path / "queue") <= 1 << 20
    assert checked(queue).totals.dropped
    queue.close()


def test_d9_a_second_instance_is_told_what_to_do(tmp_path: Path) -> None:
    options = QueueOptions(path=tmp_path / "queue")
    first = open_queue(options, NOW)
    with pytest.raises(PermanentError) as refused:
        open_queue(options, NOW)
    text = str(refused.value)
    assert str(tmp_path / "queue") in text
    assert f"process {os.getpid()}" in text
    assert "queue.path" in text
    first.close()
    open_queue(options, NOW).close()


@pytest.mark.parametrize("below", ["", "queue"])
def test_a_path_that_can_not_be_a_folder_is_a_wrong_configuration(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PermanentError, match=r"cannot keep a queue in .*file.*set queue\.path"):
        open_queue(QueueOptions(path=tmp_path / "file" / below), NOW)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_queue_that_was_made_smaller_drops_its_oldest(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    queue = open_queue(QueueOptions(path=path), NOW)
    put = fill(queue, 30, size=100_000)
    queue.close()
    queue = open_queue(QueueOptions(path=path, max_size=ByteSize.parse("1MiB")), NOW)
    state = checked(queue)
    assert state.bytes == on_disk(path) <= 1 << 20
    left = drain(queue)
    assert left == put[len(put) - len(left) :]
    assert state.totals.dropped.get("queue_over_size", 0) == points(put) - points(left)


def test_a_folder_is_looked_at_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    path.mkdir()
    assert inspect(path).totals.appended == 0
    assert list(path.iterdir()) == []
    queue = open_queue(QueueOptions(path=path), NOW)
    put = fill(queue, 100, size=5000)
    queue.settle(40, acked=points(put[:40]) - 5, rejected={"no": 5} if queue.take(200_000) else {})
    looked, state = inspect(path), checked(queue)
    assert looked.totals == state.totals
    assert looked.bytes == state.bytes == on_disk(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    queue.close()
    assert inspect(path).totals == state.totals
    after = {file.name: file.read_bytes() for file in path.iterdir()}
    assert before.keys() == after.keys()
    with pytest.raises(FileNotFoundError):
        inspect(tmp_path / "none")
