"""Tests of opening a queue from its options."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from config.value_types import ByteSize, Duration
from pipeline.base.errors import PermanentError, TransientError
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.disk.cursor import CursorFile, CursorState
from pipeline.delivery.queue.disk.folder import LOCK, QueueFolder
from pipeline.delivery.queue.factory import open_queue
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.support import Clock, checked, drain, fill, on_disk, points

NOW = Clock().now


def test_a_queue_without_path_is_in_memory() -> None:
    assert isinstance(open_queue(QueueOptions(), "lines", NOW), MemoryQueue)


def test_a_queue_with_path_is_on_disk_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down"
    queue = open_queue(QueueOptions(path=path), "lines", NOW)
    assert isinstance(queue, FallbackQueue)
    assert path.stat().st_mode & 0o777 == 0o700
    fill(queue, 1)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


def test_max_size_and_fsync_are_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = QueueOptions(
        path=tmp_path / "queue", max_size=ByteSize.parse("1MiB"), fsync=Duration.parse("0s")
    )
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("flushed"))
    queue = open_queue(options, "lines", NOW)
    fill(queue, 30, size=100_000)
    queue.maintain(10**18)
    assert 0 < on_disk(tmp_path / "queue") <= 1 << 20
    assert checked(queue).totals.dropped
    queue.close()


def test_d9_a_folder_in_use_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    options = QueueOptions(path=tmp_path / "queue")
    open_queue(options, "lines", NOW).close()
    # In containers, two processes can have the same process id.
    (tmp_path / "queue" / "lock").write_text(f"{os.getpid()}\n")
    with (tmp_path / "queue" / "lock").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(PermanentError) as refused:
            open_queue(options, "lines", NOW)
    text = str(refused.value)
    assert str(tmp_path / "queue") in text
    assert f"process {os.getpid()}" in text
    assert "queue.path" in text
    open_queue(options, "lines", NOW).close()


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
def test_d9_a_folder_in_use_by_the_same_process_is_a_transient_error(
    tmp_path: Path, times: int
) -> None:
    options = QueueOptions(path=tmp_path / "queue")
    first = open_queue(options, "lines", NOW)
    for _ in range(times):
        with pytest.raises(TransientError, match="is in use by this podgpu") as refused:
            open_queue(options, "lines", NOW)
        assert refused.value.retry_after == 1
        assert str(tmp_path / "queue") in str(refused.value)
    first.close()
    open_queue(options, "lines", NOW).close()


@pytest.mark.parametrize(("one", "other"), [("otlp", "jsonl"), ("jsonl", "otlp")])
@pytest.mark.parametrize("settled", [False, True])
def test_a_folder_with_records_of_another_kind_is_refused_and_unchanged(
    tmp_path: Path, one: str, other: str, *, settled: bool
) -> None:
    path = tmp_path / "queue"
    options = QueueOptions(path=path)
    queue = open_queue(options, one, NOW)
    put = fill(queue, 3)
    if settled:
        drain(queue)
    queue.close()
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}
    for _ in range(2):
        with pytest.raises(PermanentError) as refused:
            open_queue(options, other, NOW)
        for part in (str(path), one, other, "queue.path"):
            assert part in str(refused.value)
    after = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}
    assert before == after
    queue = open_queue(options, one, NOW)
    assert drain(queue) == ([] if settled else put)
    queue.close()


@pytest.mark.parametrize("how", ["lost", "older"])
def test_a_folder_of_unknown_kind_is_accepted(tmp_path: Path, how: str) -> None:
    path = tmp_path / "queue"
    options = QueueOptions(path=path)
    queue = open_queue(options, "otlp", NOW)
    put = fill(queue, 3)
    queue.close()
    (path / "cursor").unlink()
    if how == "older":
        cursor = CursorFile(path / "cursor")
        cursor.save(CursorState(segment=1, end=points(put), next_record=3))
        cursor.close()
    queue = open_queue(options, "jsonl", NOW)
    assert drain(queue) == put
    queue.close()
    with pytest.raises(PermanentError, match="records of the kind jsonl"):
        open_queue(options, "otlp", NOW)


@pytest.mark.parametrize("below", ["", "queue"])
def test_a_path_that_cannot_be_a_folder_is_a_permanent_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PermanentError, match=r"cannot keep a queue in .*file.*set queue\.path"):
        open_queue(QueueOptions(path=tmp_path / "file" / below), "lines", NOW)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_queue_with_a_lower_max_size_drops_its_oldest_records(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    queue = open_queue(QueueOptions(path=path), "lines", NOW)
    put = fill(queue, 30, size=100_000)
    queue.close()
    queue = open_queue(QueueOptions(path=path, max_size=ByteSize.parse("1MiB")), "lines", NOW)
    state = checked(queue)
    assert state.bytes == on_disk(path) <= 1 << 20
    left = drain(queue)
    assert left == put[len(put) - len(left) :]
    assert state.totals.dropped.get("queue_over_size", 0) == points(put) - points(left)


def test_a_check_of_the_lock_does_not_prevent_opening_the_folder(tmp_path: Path) -> None:
    QueueFolder(tmp_path, flushes=False).close()
    shared_lock = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(shared_lock, fcntl.LOCK_SH)
    timer = threading.Timer(0.02, os.close, [shared_lock])
    timer.start()
    QueueFolder(tmp_path, flushes=False).close()
    timer.join()
