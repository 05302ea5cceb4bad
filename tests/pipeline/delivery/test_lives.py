"""A sink that is entered, left and entered again; one that has a bug."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from pipeline.base.errors import PermanentError, TransientError
from pipeline.delivery.contract import Acked, Outcome, Queue, Record, Retry, Totals
from pipeline.delivery.options import QueueOptions
from pipeline.model import Instant
from tests.pipeline.delivery.support import Bench, Kept, points_of, virtual


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
async def test_what_someone_has_removed_meanwhile_is_counted_as_missing() -> None:
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
async def test_d9_a_queue_that_can_not_be_had_is_reported_and_nothing_is_held() -> None:
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
async def test_notes_and_faults_of_the_queue_are_reported(caplog: pytest.LogCaptureFixture) -> None:
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


def left_behind(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "remain in" in r.getMessage()]


@virtual
@pytest.mark.parametrize("elsewhere", [Path("/other"), None])
async def test_what_stays_behind_in_another_folder_is_reported_and_recovered_on_the_way_back(
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
    (given_out,) = left_behind(caplog)
    assert "2000 points" in given_out
    assert "/queue" in given_out
    await lives(elsewhere, 6)
    assert len(left_behind(caplog)) == 1
    bench.push.answer = lambda _: Acked()
    await lives(Path("/queue"), 1)
    assert bench.value("recovered_total") == 2000
    assert bench.value("emitted_total") == 2001
    # Memory has left nothing: that was counted when it was given up.
    assert len(left_behind(caplog)) == (1 if elsewhere is None else 2)
    assert bench.by_reason("dropped_total")["missing"] == (2000 if elsewhere is None else 2011)
