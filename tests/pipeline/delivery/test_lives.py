"""A sink that is entered, left and entered again; one that has a bug; one whose disk hangs."""

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from pipeline.delivery.contract import Acked, Outcome, Queue, Record, Retry, Totals
from pipeline.delivery.options import QueueOptions
from pipeline.errors import PermanentError, TransientError
from pipeline.model import Instant
from pipeline.threads import DaemonExecutor
from tests.pipeline.delivery.support import AtOnce, Bench, Kept, ListQueue, points_of

virtual = pytest.mark.looptime(start=1000)


def refuses(_: Sequence[Record]) -> Outcome:
    return Retry("unavailable", "collector:4317 refuses connections")


@virtual
async def test_what_a_life_before_has_left_is_recovered_and_goes_first() -> None:
    kept = Kept()
    before = Bench(kept=kept)
    before.push.answer = refuses
    async with before.life():
        before.give(1, 2, 3)
        await before.passes(1)
    assert points_of(kept.records) == 6
    bench = Bench(kept=kept)
    bench.push.made = 3
    async with bench.life():
        assert bench.value("recovered_total") == 6
        assert bench.value("queued") + bench.value("emitted_total") == 6
        bench.give(4)
        await bench.passes(1)
    assert bench.push.accepted == [0, 1, 2, 3]
    assert bench.value("produced_total") == 4
    assert bench.value("emitted_total") == 10
    assert bench.imbalance == 0


@virtual
@pytest.mark.parametrize("afresh", [False, True], ids=["again", "reloaded"])
async def test_what_this_process_has_left_itself_is_not_counted_twice(afresh: bool) -> None:
    bench = Bench()
    bench.push.answer = refuses
    for _ in range(3):
        async with bench.life(afresh=afresh):
            bench.give(2)
            await bench.passes(1)
        assert bench.imbalance == 0
    assert bench.value("recovered_total") == 0
    assert bench.value("queued") == 6
    bench.push.answer = lambda _: Acked()
    async with bench.life(afresh=afresh):
        await bench.passes(10)
    assert bench.value("emitted_total") == bench.given == 6
    assert bench.imbalance == 0


@virtual
async def test_what_somebody_has_removed_meanwhile_is_counted_as_missing() -> None:
    bench = Bench()
    bench.push.answer = refuses
    async with bench.life():
        bench.give(2, 3)
        await bench.passes(1)
    del bench.kept.records[0]
    bench.kept.appended -= 2
    async with bench.life():
        assert bench.by_reason("dropped_total") == {"missing": 2}
        assert bench.imbalance == 0


@virtual
async def test_d6_a_folder_that_opens_later_brings_its_past_along_and_that_is_not_counted() -> None:
    """Totals of earlier processes come into the queue's; what they left is recovered."""
    bench = Bench()
    bench.push.answer = refuses
    async with bench.life():
        bench.queue.writable = False
        bench.give(2)
        await bench.passes(1.1)
        bench.kept.appended += 107  # 100 were sent and 2 lost long ago, 5 waited, 1 is not there
        bench.kept.acked += 100
        bench.kept.dropped["corrupt"] += 3
        bench.kept.records.insert(0, Record(b"0:4", 4, 1))
        bench.queue.recovered = 5
        bench.queue.earlier = Totals(102, 100, {}, {"corrupt": 2})
        bench.queue.writable = True
        await bench.passes(1.1)
        assert bench.value("recovered_total") == 5
        assert bench.value("produced_total") == 2
        assert bench.value("emitted_total") == 0
        assert bench.by_reason("dropped_total") == {"corrupt": 1}
        assert bench.value("queued") == 6
        assert bench.imbalance == 0


@virtual
async def test_d6_what_this_process_has_left_waits_while_the_folder_can_not_be_opened() -> None:
    bench = Bench()
    bench.push.answer = refuses
    async with bench.life():
        bench.give(2, 3)
        await bench.passes(1)
    away, bench.kept.records = bench.kept.records, []
    bench.kept.appended -= 5
    bench.opens = False
    async with bench.life():
        bench.queue.earlier = Totals()
        bench.give(4)
        await bench.passes(1.1)
        assert bench.value("queued") == 9
        assert bench.imbalance == 0
        bench.kept.records[:0] = away
        bench.kept.appended += 5
        bench.queue.recovered = 5
        bench.queue.writable = True
        await bench.passes(1.1)
        assert bench.value("queued") == bench.value("produced_total") == 9
        assert bench.value("recovered_total") == bench.value("dropped_total") == 0
        assert bench.imbalance == 0


@virtual
async def test_a_receiver_that_can_not_be_had_yet_lets_data_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    missing = "the token file /run/token isn't there: mount it"
    bench.push.entering = [TransientError(missing), PermanentError(missing)]
    async with bench.life():
        bench.give(1)
        await bench.passes(0.1)
        assert (bench.value("delivering"), bench.value("queued")) == (0, 1)
        await bench.passes(10)
        assert bench.push.accepted == [0]
    assert caplog.text.count(missing) == 1
    assert (bench.push.entered, bench.push.left) == (1, 1)
    assert bench.value("retries_total") == 0  # no message was sent


@virtual
async def test_one_that_never_can_be_had_is_not_left_either() -> None:
    bench = Bench()
    bench.push.entering = [TransientError("not now", retry_after=5.0) for _ in range(100)]
    async with bench.life():
        bench.give(1)
        await bench.passes(60)
    assert len(bench.push.entering) >= 88
    assert (bench.push.entered, bench.push.left, bench.queue.closed) == (0, 0, True)
    assert bench.value("queued") == 1


@virtual
async def test_what_can_not_be_had_at_all_gives_the_queue_back() -> None:
    bench = Bench()
    bench.push.entering = [PermanentError("no such protocol")]
    with pytest.raises(PermanentError, match="no such protocol"):
        await bench.sink.__aenter__()
    assert bench.queue.closed


@virtual
async def test_d9_a_queue_that_can_not_be_had_is_told_and_nothing_is_held() -> None:
    def locked(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> Queue:
        raise PermanentError(f"another podgpu has {options.path}")

    bench = Bench(open_queue=locked)
    with pytest.raises(PermanentError, match="another podgpu has /queue"):
        await bench.sink.__aenter__()
    assert bench.push.entered == 0


class BugError(Exception):
    """Nobody expects it."""


@virtual
@pytest.mark.parametrize("place", ["encode", "send", "append", "take", "settle", "tend"])
async def test_a_bug_is_not_hidden_and_the_queue_is_closed(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()

    def bug(*_: object) -> NoReturn:
        raise BugError

    async def live() -> None:
        async with bench.sink:
            if place == "encode":
                monkeypatch.setattr(bench.push, "encode", bug)
            elif place == "send":
                bench.push.answer = bug
            else:
                bench.queue.fails[place] = bug
            running = asyncio.create_task(bench.sink.run(bench.inbox))
            bench.give()
            # The inbox doesn't end.
            await running

    with pytest.raises(BugError):
        async with asyncio.timeout(10):
            await live()
    assert bench.queue.closed
    assert bench.push.left == 1


@virtual
async def test_a_bug_in_the_last_moments_is_not_hidden_either() -> None:
    bench = Bench()

    async def bug(_: Sequence[Record]) -> Outcome:
        await asyncio.sleep(1)
        raise BugError

    bench.push.answer = bug

    async def live() -> None:
        async with bench.life():
            bench.give()
            await bench.passes(0.1)

    with pytest.raises(BugError):
        await live()
    assert bench.queue.closed


@virtual
async def test_notes_and_faults_of_the_queue_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "podgpu")
    bench = Bench()
    async with bench.life():
        bench.queue.notes.append("the queue's disk is full: make room")
        bench.queue.faults["write", "no_space"] = 3
        bench.queue.writable = False
        await bench.passes(1.1)
        assert caplog.text.count("the queue's disk is full: make room") == 1
        assert bench.value("errors_total", operation="write", reason="no_space") == 3
        assert bench.value("queue_writable") == 0
        bench.queue.faults["write", "no_space"] = 5
        bench.queue.writable = True
        await bench.passes(1.1)
        assert bench.value("errors_total", operation="write", reason="no_space") == 5
        assert bench.value("queue_writable") == 1
        bench.queue.notes.append("the queue's disk has room again")
        await bench.passes(1.1)
        bench.queue.notes.append("2 points are broken")
        bench.kept.dropped["corrupt"] += 2
        bench.kept.appended += 2
        await bench.passes(1.1)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "the queue's disk is full: make room"),
        ("INFO", "the queue's disk has room again"),
        ("WARNING", "2 points are broken"),
    ]


@virtual
@pytest.mark.parametrize(
    ("fsync", "times"), [("1s", 10), ("0s", 10), ("5s", 10), ("200ms", 50), ("1ms", 200)]
)
async def test_the_queue_is_tended_once_a_second_or_as_often_as_it_is_flushed(
    fsync: str, times: int
) -> None:
    bench = Bench(fsync=fsync)
    async with bench.life():
        await bench.passes(10.01)
        assert len(bench.queue.tended) == pytest.approx(times, abs=2)


class Slowly(AtOnce):
    """Answers after a while, on virtual time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = 0.0
        self.later = seconds

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        made = super().submit(fn, *args, **kwargs)
        if not self.seconds:  # the queue opens at once
            self.seconds = self.later
            return made
        future: Future[Any] = Future()
        asyncio.get_running_loop().call_later(self.seconds, future.set_result, made.result())
        return future


class Hanging:
    """A disk that hangs when told: real threads, real time."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self) -> None:
        self.answers.wait(20)


async def test_a_disk_that_hangs_holds_up_nobody_and_what_comes_waits_in_the_inbox(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.delivery.tending._EVERY", 0.02)
    monkeypatch.setattr("pipeline.delivery.delivering._CLOSING", 0.1)
    monkeypatch.setattr("pipeline.delivery.delivering._LEAST", 0.1)
    disk, bench = Hanging(), Bench(executor=DaemonExecutor)
    try:
        async with bench.sink:
            running = asyncio.create_task(bench.sink.run(bench.inbox))
            bench.give(1)
            while not bench.push.accepted:
                await asyncio.sleep(0.001)
            bench.queue.fails["append"] = disk
            disk.answers.clear()
            for _ in range(50):
                bench.give(2)
            while "has not answered" not in caplog.text:
                await asyncio.sleep(0.001)
            assert len(bench.inbox) == 49
            assert bench.value("queue_writable") == 0
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert "gave up on the queue in /queue" in caplog.text
        # Of the one that the thread holds nobody knows.
        assert bench.by_reason("dropped_total") == {"shutdown": 2}
        assert bench.imbalance == 0
    finally:
        disk.answers.set()
    # The thread ends what it was told to do.
    while not bench.queue.closed:
        await asyncio.sleep(0.001)
    assert points_of(bench.kept.records) == 2


async def test_a_disk_that_answers_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.delivery.tending._EVERY", 0.02)
    caplog.set_level("INFO", "podgpu")
    disk, bench = Hanging(), Bench(executor=DaemonExecutor)
    async with bench.life():
        bench.queue.fails["append"] = disk
        disk.answers.clear()
        for _ in range(50):
            bench.give(2)
        while "has not answered" not in caplog.text:
            await asyncio.sleep(0.001)
        disk.answers.set()
        while len(bench.push.accepted) < 50 or "answers again" not in caplog.text:
            await asyncio.sleep(0.001)
        assert bench.value("queue_writable") == 1
        assert bench.imbalance == 0


class SlowFolder:
    """Opens queues as soon as its disk answers."""

    def __init__(self) -> None:
        self.disk = Hanging()
        self.disk.answers.clear()
        self.asked = 0
        self.opened: list[ListQueue] = []

    def __call__(self, options: QueueOptions, kind: str, now: Callable[[], Instant]) -> ListQueue:
        self.asked += 1
        self.disk()
        self.opened.append(ListQueue(Kept(), lasting=True, max_size=1000))
        return self.opened[-1]


async def test_a_folder_that_opens_slowly_is_waited_for_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.delivery.threaded._OPENING", 0.05)
    monkeypatch.setattr("pipeline.delivery.threaded._MORE", 0.1)
    folder = SlowFolder()
    bench = Bench(open_queue=folder, executor=DaemonExecutor)
    for _ in range(3):
        with pytest.raises(TransientError, match="/queue has not answered yet") as told:
            await bench.sink.__aenter__()
        assert told.value.retry_after == 0.05
    folder.disk.answers.set()
    async with asyncio.timeout(10):
        while not folder.opened:
            await asyncio.sleep(0.001)
        async with bench.life():
            bench.give(1)
            await bench.passes(0.01)
    assert bench.push.accepted == [0]
    assert folder.asked == 1
    assert folder.opened[0].closed


async def test_a_folder_that_opens_when_its_sink_is_gone_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.delivery.threaded._OPENING", 0.05)
    folder = SlowFolder()
    bench = Bench(open_queue=folder, executor=DaemonExecutor)
    with pytest.raises(TransientError):
        await bench.sink.__aenter__()
    bench.sink = bench._made()
    gc.collect()
    folder.disk.answers.set()
    async with asyncio.timeout(10):
        while not folder.opened or not folder.opened[0].closed:
            await asyncio.sleep(0.001)


@virtual
async def test_a_folder_that_can_not_be_opened_now_is_asked_anew() -> None:
    errors: list[Exception] = [TransientError("still being closed", retry_after=1.0)]
    bench = Bench()

    def busy(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> Queue:
        assert kind == "lines"
        if errors:
            raise errors.pop()
        return bench._open(options, kind, now)

    bench.open_queue = busy
    bench.sink = bench._made()
    with pytest.raises(TransientError, match="still being closed"):
        await bench.sink.__aenter__()
    async with bench.life():
        bench.give(1)
        await bench.passes(1)
    assert bench.push.accepted == [0]


@pytest.mark.parametrize("call", ["append", "settle", "tend", "close"])
async def test_the_end_waits_for_a_hung_disk_no_longer_than_a_flush_and_a_close(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it hangs in: what the inbox still holds is for whoever has closed it."""
    monkeypatch.setattr("pipeline.delivery.delivering._CLOSING", 0.2)
    monkeypatch.setattr("pipeline.delivery.delivering._LEAST", 0.1)
    disk, bench = Hanging(), Bench(executor=DaemonExecutor, flush=0.1, fsync="50ms")
    try:
        async with asyncio.timeout(10):
            async with bench.sink:
                bench.queue.fails[call] = disk
                disk.answers.clear()
                for _ in range(5):
                    bench.give(2)
                bench.inbox.close()
                await bench.sink.run(bench.inbox)
        left = 0
        while bench.inbox.take_nowait() is not None:
            left += 2
        assert bench.value("produced_total") + left == bench.given
        assert bench.imbalance == 0
    finally:
        disk.answers.set()


@virtual
@pytest.mark.parametrize("end", [1.9, 2.1, 30])
async def test_the_end_waits_for_a_slow_disk_as_long_as_for_the_receiver(end: float) -> None:
    """Both share one flush."""
    bench = Bench(executor=lambda _: Slowly(end))
    async with bench.sink:
        bench.give(1)
        bench.inbox.close()
        begun = bench.clock.now()
        await bench.sink.run(bench.inbox)
        assert begun.seconds_until(bench.clock.now()) <= 2.01
    assert begun.seconds_until(bench.clock.now()) <= (6 if end < 2 else 3.01)
    assert bench.by_reason("dropped_total") == ({} if end < 2 else {"shutdown": 1})


def left_behind(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "stay behind" in r.getMessage()]


@virtual
@pytest.mark.parametrize("elsewhere", [Path("/other"), None])
async def test_what_stays_behind_in_another_folder_is_told_and_recovered_on_the_way_back(
    elsewhere: Path | None, caplog: pytest.LogCaptureFixture
) -> None:
    folders = {Path("/queue"): Kept(), elsewhere: Kept()}
    bench = Bench()
    bench.push.answer = refuses

    async def lives(path: Path | None, *points: int) -> None:
        bench.options = msgspec.structs.replace(bench.options, path=path)
        bench.kept = folders[path]
        async with bench.life(afresh=True):
            bench.give(*points)
            await bench.passes(1)
        assert bench.imbalance == 0

    await lives(Path("/queue"), 1000, 963)
    await lives(Path("/queue/"), 37)
    assert not left_behind(caplog)
    await lives(elsewhere, 5)
    assert bench.by_reason("dropped_total")["missing"] == 2000
    (told,) = left_behind(caplog)
    assert "2000 points" in told
    assert "/queue" in told
    await lives(elsewhere, 6)
    assert len(left_behind(caplog)) == 1
    bench.push.answer = lambda _: Acked()
    await lives(Path("/queue"), 1)
    assert bench.value("recovered_total") == 2000
    assert bench.value("emitted_total") == 2001
    # Memory has left nothing: that was counted when it was given up.
    assert len(left_behind(caplog)) == (1 if elsewhere is None else 2)
    assert bench.by_reason("dropped_total")["missing"] == (2000 if elsewhere is None else 2011)
