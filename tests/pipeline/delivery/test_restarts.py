"""Tests of a sink that is entered again after it was left, and of one with a bug."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from pipeline.base.errors import PermanentError, TransientError
from pipeline.delivery.contract import Acked, Outcome, Record, Retry, Totals
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import Instant
from tests.pipeline.delivery.support import Bench, StoredRecords, points_of, virtual


def refuses(_: Sequence[Record]) -> Outcome:
    return Retry("unavailable", "collector:4317 refuses connections")


@virtual
async def test_records_of_an_earlier_process_are_recovered_and_sent_first() -> None:
    stored = StoredRecords()
    before = Bench(stored=stored)
    before.push.answer = refuses
    async with before.life():
        before.give(1, 2, 3)
        await before.wait(1)
    assert points_of(stored.records) == 6
    bench = Bench(stored=stored)
    bench.push.encoded = 3
    async with bench.life():
        assert bench.value("recovered_total") == 6
        assert bench.value("queued") + bench.value("emitted_total") == 6
        bench.give(4)
        await bench.wait(1)
    assert bench.push.accepted == [0, 1, 2, 3]
    assert bench.value("produced_total") == 4
    assert bench.value("emitted_total") == 10
    assert bench.imbalance == 0


@virtual
@pytest.mark.parametrize("new_object", [False, True], ids=["again", "reloaded"])
async def test_records_that_this_process_left_are_not_counted_as_recovered(
    new_object: bool,
) -> None:
    bench = Bench()
    bench.push.answer = refuses
    for _ in range(3):
        async with bench.life(new_object=new_object):
            bench.give(2)
            await bench.wait(1)
        assert bench.imbalance == 0
    assert bench.value("recovered_total") == 0
    assert bench.value("queued") == 6
    bench.push.answer = lambda _: Acked()
    async with bench.life(new_object=new_object):
        await bench.wait(10)
    assert bench.value("emitted_total") == bench.given == 6
    assert bench.imbalance == 0


@virtual
async def test_records_that_were_removed_meanwhile_are_counted_as_missing() -> None:
    bench = Bench()
    bench.push.answer = refuses
    async with bench.life():
        bench.give(2, 3)
        await bench.wait(1)
    del bench.stored.records[0]
    bench.stored.appended -= 2
    async with bench.life():
        assert bench.by_reason("dropped_total") == {"missing": 2}
        assert bench.imbalance == 0


@virtual
async def test_d6_totals_of_earlier_processes_in_a_folder_opened_late_are_not_counted() -> None:
    """The totals of the queue include them. The records that they left are recovered."""
    bench = Bench()
    bench.push.answer = refuses
    async with bench.life():
        bench.queue.writable = False
        bench.give(2)
        await bench.wait(1.1)
        # 100 were sent and 2 lost before. 5 are queued, and 1 of them is missing.
        bench.stored.appended += 107
        bench.stored.acked += 100
        bench.stored.dropped["corrupt"] += 3
        bench.stored.records.insert(0, Record(b"0:4", 4, 1))
        bench.queue.recovered = 5
        bench.queue.earlier = Totals(102, 100, {}, {"corrupt": 2})
        bench.queue.writable = True
        await bench.wait(1.1)
        assert bench.value("recovered_total") == 5
        assert bench.value("produced_total") == 2
        assert bench.value("emitted_total") == 0
        assert bench.by_reason("dropped_total") == {"corrupt": 1}
        assert bench.value("queued") == 6
        assert bench.imbalance == 0


@virtual
async def test_d6_records_left_by_this_process_stay_queued_until_the_folder_can_be_opened() -> None:
    bench = Bench()
    bench.push.answer = refuses
    async with bench.life():
        bench.give(2, 3)
        await bench.wait(1)
    removed, bench.stored.records = bench.stored.records, []
    bench.stored.appended -= 5
    bench.opens_writable = False
    async with bench.life():
        bench.queue.earlier = Totals()
        bench.give(4)
        await bench.wait(1.1)
        assert bench.value("queued") == 9
        assert bench.imbalance == 0
        bench.stored.records[:0] = removed
        bench.stored.appended += 5
        bench.queue.recovered = 5
        bench.queue.writable = True
        await bench.wait(1.1)
        assert bench.value("queued") == bench.value("produced_total") == 9
        assert bench.value("recovered_total") == bench.value("dropped_total") == 0
        assert bench.imbalance == 0


@virtual
async def test_data_is_queued_until_the_receiver_can_be_entered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    missing = "the token file /run/token isn't there: mount it"
    bench.push.enter_errors = [TransientError(missing), PermanentError(missing)]
    async with bench.life():
        bench.give(1)
        await bench.wait(0.1)
        assert (bench.value("delivering"), bench.value("queued")) == (0, 1)
        await bench.wait(10)
        assert bench.push.accepted == [0]
    assert caplog.text.count(missing) == 1
    assert (bench.push.entered, bench.push.left) == (1, 1)
    assert bench.value("retries_total") == 0  # no message was sent


@virtual
async def test_a_receiver_that_was_never_entered_is_not_exited() -> None:
    bench = Bench()
    bench.push.enter_errors = [TransientError("not now", retry_after=5.0) for _ in range(100)]
    async with bench.life():
        bench.give(1)
        await bench.wait(60)
    assert len(bench.push.enter_errors) >= 88
    assert (bench.push.entered, bench.push.left, bench.queue.closed) == (0, 0, True)
    assert bench.value("queued") == 1


@virtual
async def test_a_permanent_error_of_the_receiver_closes_the_queue() -> None:
    bench = Bench()
    bench.push.enter_errors = [PermanentError("no such protocol")]
    with pytest.raises(PermanentError, match="no such protocol"):
        await bench.sink.__aenter__()
    assert bench.queue.closed


@virtual
async def test_d9_a_permanent_error_of_the_queue_ends_the_start_without_a_receiver() -> None:
    def locked(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> MemoryQueue:
        raise PermanentError(f"another podgpu has {options.path}")

    bench = Bench(open_queue=locked)
    with pytest.raises(PermanentError, match="another podgpu has /queue"):
        await bench.sink.__aenter__()
    assert bench.push.entered == 0


class BugError(Exception):
    """An error that the sink does not expect."""


@virtual
@pytest.mark.parametrize("place", ["encode", "send", "append", "take", "settle", "maintain"])
async def test_a_bug_is_not_hidden_and_the_queue_is_closed(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()

    def bug(*_: object) -> NoReturn:
        raise BugError

    async def run() -> None:
        async with bench.sink:
            if place == "encode":
                monkeypatch.setattr(bench.push, "encode", bug)
            elif place == "send":
                bench.push.answer = bug
            else:
                bench.queue.fails[place] = bug
            running = asyncio.create_task(bench.sink.run(bench.inbox))
            bench.give()
            # The inbox stays open.
            await running

    with pytest.raises(BugError):
        async with asyncio.timeout(10):
            await run()
    assert bench.queue.closed
    assert bench.push.left == 1


@virtual
async def test_a_bug_during_the_stop_is_not_hidden() -> None:
    bench = Bench()

    async def bug(_: Sequence[Record]) -> Outcome:
        await asyncio.sleep(1)
        raise BugError

    bench.push.answer = bug

    async def run() -> None:
        async with bench.life():
            bench.give()
            await bench.wait(0.1)

    with pytest.raises(BugError):
        await run()
    assert bench.queue.closed


@virtual
async def test_notes_and_faults_of_the_queue_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "podgpu")
    bench = Bench()
    async with bench.life():
        bench.queue.notes.append("the queue's disk is full: make room")
        bench.queue.faults["write", "no_space"] = 3
        bench.queue.writable = False
        await bench.wait(1.1)
        assert caplog.text.count("the queue's disk is full: make room") == 1
        assert bench.value("errors_total", operation="write", reason="no_space") == 3
        assert bench.value("queue_writable") == 0
        bench.queue.faults["write", "no_space"] = 5
        bench.queue.writable = True
        await bench.wait(1.1)
        assert bench.value("errors_total", operation="write", reason="no_space") == 5
        assert bench.value("queue_writable") == 1
        bench.queue.notes.append("the queue's disk has room again")
        await bench.wait(1.1)
        bench.queue.notes.append("2 points are broken")
        bench.stored.dropped["corrupt"] += 2
        bench.stored.appended += 2
        await bench.wait(1.1)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "the queue's disk is full: make room"),
        ("INFO", "the queue's disk has room again"),
        ("WARNING", "2 points are broken"),
    ]


@virtual
@pytest.mark.parametrize(
    ("fsync", "times"), [("1s", 10), ("0s", 10), ("5s", 10), ("200ms", 50), ("1ms", 200)]
)
async def test_the_queue_is_maintained_each_second_or_at_each_flush_interval(
    fsync: str, times: int
) -> None:
    bench = Bench(fsync=fsync)
    async with bench.life():
        await bench.wait(10.01)
        assert len(bench.queue.maintained) == pytest.approx(times, abs=2)


def left_behind_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "remain in" in r.getMessage()]


@virtual
@pytest.mark.parametrize("elsewhere", [Path("/other"), None])
async def test_points_in_the_previous_folder_are_logged_and_recovered_on_return(
    elsewhere: Path | None, caplog: pytest.LogCaptureFixture
) -> None:
    folders = {Path("/queue"): StoredRecords(), elsewhere: StoredRecords()}
    bench = Bench()
    bench.push.answer = refuses

    async def run_with(path: Path | None, *points: int) -> None:
        bench.options = msgspec.structs.replace(bench.options, path=path)
        bench.stored = folders[path]
        async with bench.life(new_object=True):
            bench.give(*points)
            await bench.wait(1)
        assert bench.imbalance == 0

    await run_with(Path("/queue"), 1000, 963)
    await run_with(Path("/queue/"), 37)
    assert not left_behind_messages(caplog)
    await run_with(elsewhere, 5)
    assert bench.by_reason("dropped_total")["missing"] == 2000
    (message,) = left_behind_messages(caplog)
    assert "2000 points" in message
    assert "/queue" in message
    await run_with(elsewhere, 6)
    assert len(left_behind_messages(caplog)) == 1
    bench.push.answer = lambda _: Acked()
    await run_with(Path("/queue"), 1)
    assert bench.value("recovered_total") == 2000
    assert bench.value("emitted_total") == 2001
    # A queue in memory leaves nothing: its points were counted as dropped.
    assert len(left_behind_messages(caplog)) == (1 if elsewhere is None else 2)
    assert bench.by_reason("dropped_total")["missing"] == (2000 if elsewhere is None else 2011)
