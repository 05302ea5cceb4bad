"""Tests of the contract of queues, for all kinds of queues."""

from pathlib import Path

import pytest

from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.support import (
    KINDS,
    Bench,
    checked,
    drain,
    fill,
    numbers,
    points,
    record,
)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path / "queue")


@pytest.fixture
def queue(bench: Bench) -> MemoryQueue:
    return bench.open()


def test_an_empty_queue_returns_no_records(queue: MemoryQueue) -> None:
    assert queue.take(100) == ()
    queue.release()
    queue.settle(0)
    state = checked(queue)
    assert state.totals.appended == state.recovered == 0
    assert state.oldest_ns is None
    assert state.writable


def test_records_are_returned_unchanged_and_in_order(queue: MemoryQueue) -> None:
    put = fill(queue, 50)
    assert queue.take(1 << 20) == tuple(put)


@pytest.mark.parametrize(("most", "count"), [(0, 1), (39, 1), (40, 1), (79, 1), (80, 2), (125, 3)])
def test_take_returns_as_many_records_as_fit_but_at_least_one(
    queue: MemoryQueue, most: int, count: int
) -> None:
    put = fill(queue, 10)
    assert queue.take(most) == tuple(put[:count])


def test_records_in_flight_count_as_queued_until_they_are_settled(queue: MemoryQueue) -> None:
    put = fill(queue, 10)
    queue.take(120)
    assert checked(queue).totals.queued == points(put)
    queue.settle(3, acked=points(put[:3]))
    assert checked(queue).totals.queued == points(put[3:])
    assert queue.take(40) == (put[3],)


def test_some_records_in_flight_can_be_settled_and_the_others_released(queue: MemoryQueue) -> None:
    put = fill(queue, 10)
    queue.take(200)
    queue.settle(2, acked=points(put[:2]))
    queue.settle(1, rejected={"http_400": put[2].points})
    queue.release()
    totals = checked(queue).totals
    assert totals.acked == points(put[:2])
    assert totals.rejected == {"http_400": put[2].points}
    assert queue.take(1 << 20) == tuple(put[3:])


def test_some_points_of_a_record_can_be_rejected(queue: MemoryQueue) -> None:
    queue.append([record(0, points=10)])
    queue.take(1)
    queue.settle(1, acked=7, rejected={"partial": 2, "late": 1})
    totals = checked(queue).totals
    assert (totals.acked, dict(totals.rejected)) == (7, {"partial": 2, "late": 1})


def test_released_records_are_taken_again(queue: MemoryQueue) -> None:
    put = fill(queue, 5)
    for most in (40, 1000, 80):
        queue.take(most)
        queue.release()
    assert drain(queue) == put


def test_records_in_flight_must_be_settled_before_the_next_take(queue: MemoryQueue) -> None:
    fill(queue, 5)
    queue.take(80)
    with pytest.raises(RuntimeError, match="neither settled nor released"):
        queue.take(80)


@pytest.mark.parametrize(
    ("count", "acked", "rejected"),
    [(3, 6, {}), (-1, 0, {}), (2, 2, {}), (2, 4, {}), (2, 4, {"a": -1}), (2, -1, {"a": 4})],
)
def test_settled_counts_must_match_the_records_in_flight(
    queue: MemoryQueue, count: int, acked: int, rejected: dict[str, int]
) -> None:
    put = fill(queue, 5)
    before = queue.take(80)
    assert points(before) == points(put[:2]) == 3
    with pytest.raises(ValueError, match=r"settled|negative"):
        queue.settle(count, acked=acked, rejected=rejected)
    queue.settle(2, acked=3)
    assert checked(queue).totals.acked == 3


def test_the_state_shows_the_time_of_the_oldest_record(queue: MemoryQueue) -> None:
    put = fill(queue, 3)
    assert checked(queue).oldest_ns == put[0].created_ns
    queue.take(80)
    assert checked(queue).oldest_ns == put[0].created_ns
    queue.settle(1, acked=put[0].points)
    assert checked(queue).oldest_ns == put[1].created_ns
    queue.release()
    assert checked(queue).oldest_ns == put[1].created_ns
    drain(queue)
    assert checked(queue).oldest_ns is None
    later = fill(queue, 1, start=9)
    assert checked(queue).oldest_ns == later[0].created_ns


def test_d2_a_full_queue_drops_its_oldest_records_and_counts_them(queue: MemoryQueue) -> None:
    put = fill(queue, 40, size=100_000)
    state = checked(queue)
    assert state.bytes <= 1 << 20
    assert set(state.totals.dropped) == {"queue_over_size"}
    left = drain(queue)
    assert len(left) >= 7
    assert left == put[-len(left) :]
    assert state.totals.dropped["queue_over_size"] == points(put[: -len(left)])


def test_d2_records_in_flight_are_dropped_only_when_they_are_released(
    queue: MemoryQueue,
) -> None:
    put = fill(queue, 5, size=100_000)
    taken = queue.take(300_000)
    assert len(taken) == 3
    later = fill(queue, 40, size=100_000, start=5)
    dropped = checked(queue).totals.dropped["queue_over_size"]
    queue.settle(1, acked=taken[0].points)
    totals = checked(queue).totals
    assert totals.acked == taken[0].points
    assert totals.dropped["queue_over_size"] == dropped
    queue.release()
    totals = checked(queue).totals
    assert totals.dropped["queue_over_size"] == dropped + points(taken[1:])
    assert totals.appended == points(put + later)
    left = drain(queue)
    assert left == (put + later)[-len(left) :]


def test_d2_a_record_larger_than_the_queue_is_dropped(queue: MemoryQueue) -> None:
    put = fill(queue, 3)
    queue.append([record(7, size=(1 << 20) + 1), record(8)])
    assert checked(queue).totals.dropped == {"too_large": record(7).points}
    assert numbers(drain(queue)) == [*numbers(put), 8]


def test_a_record_larger_than_a_segment_is_stored(queue: MemoryQueue) -> None:
    put = [record(0, 300_000), record(1), record(2, 70_000), record(3)]
    queue.append(put)
    assert drain(queue) == put


def test_too_many_reasons_are_combined_into_one(queue: MemoryQueue) -> None:
    for number in range(200):
        queue.append([record(number)])
        queue.take(1)
        queue.settle(1, rejected={f"r{number}": record(number).points})
    totals = checked(queue).totals
    assert len(totals.rejected) <= 33
    assert totals.rejected["other"] > 0


def test_closing_a_queue_releases_the_records_in_flight(bench: Bench) -> None:
    queue = bench.open()
    put = fill(queue, 5)
    queue.take(80)
    queue.settle(1, acked=put[0].points)
    queue.close()
    totals = checked(queue).totals
    if bench.kind == "memory":
        assert totals.dropped == {"shutdown": points(put[1:])}
        return
    assert totals.queued == points(put[1:])
    again = bench.open()
    state = checked(again)
    assert state.recovered == points(put[1:])
    assert state.totals == totals
    assert state.previous is not None
    assert state.previous.appended == state.previous.acked == put[0].points
    assert drain(again) == put[1:]
