"""From options to a queue, and looking at one from outside."""

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
from pipeline.delivery.queue.factory import inspect, open_queue
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.support import Clock, checked, drain, fill, on_disk, points

NOW = Clock().now


def test_without_a_path_it_is_in_memory() -> None:
    assert isinstance(open_queue(QueueOptions(), "lines", NOW), MemoryQueue)


def test_with_a_path_it_is_on_the_disk_and_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down"
    queue = open_queue(QueueOptions(path=path), "lines", NOW)
    assert isinstance(queue, FallbackQueue)
    assert path.stat().st_mode & 0o777 == 0o700
    fill(queue, 1)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


def test_the_options_are_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_d9_a_second_instance_is_reported_what_to_do(tmp_path: Path) -> None:
    options = QueueOptions(path=tmp_path / "queue")
    open_queue(options, "lines", NOW).close()
    # In containers the other one may have the number that this one has, too.
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


@pytest.mark.parametrize("times", [1, 3])
def test_d9_what_this_process_has_itself_is_free_soon(tmp_path: Path, times: int) -> None:
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
def test_records_of_another_kind_are_refused_and_kept(
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
        for word in (str(path), one, other, "queue.path"):
            assert word in str(refused.value)
    after = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}
    assert before == after
    queue = open_queue(options, one, NOW)
    assert drain(queue) == ([] if settled else put)
    queue.close()


@pytest.mark.parametrize("how", ["lost", "older"])
def test_a_folder_that_does_not_report_its_kind_is_taken(tmp_path: Path, how: str) -> None:
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
def test_a_path_that_can_not_be_a_folder_is_a_wrong_configuration(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PermanentError, match=r"cannot keep a queue in .*file.*set queue\.path"):
        open_queue(QueueOptions(path=tmp_path / "file" / below), "lines", NOW)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_queue_that_was_made_smaller_drops_its_oldest(tmp_path: Path) -> None:
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


def test_a_folder_is_looked_at_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    path.mkdir()
    assert inspect(path).totals.appended == 0
    assert list(path.iterdir()) == []
    queue = open_queue(QueueOptions(path=path), "lines", NOW)
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


def test_who_only_looks_whether_it_is_in_use_keeps_no_one_from_opening_it(tmp_path: Path) -> None:
    QueueFolder(tmp_path, flushes=False).close()
    looks = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    gone = threading.Timer(0.02, os.close, [looks])
    gone.start()
    QueueFolder(tmp_path, flushes=False).close()
    gone.join()
