"""For any order of steps, each error is written once, waits, or is counted as dropped."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS, Instant
from sinks.events.affected_pods import EventSubject, PodError
from sinks.events.event_queue import MAX_ENTRIES, REMEMBERED, EventQueue, WrittenEvent

REPEAT, PER_MINUTE = 600.0, 30


def subject(pod: int, code: int = 31) -> EventSubject:
    return EventSubject("ml", f"pod-{pod}", f"uid-{pod}", "GPU-0", code)


def at(seconds: float) -> Instant:
    return Instant(round(seconds * NS), 1_700_000_000 * NS + round(seconds * NS))


def error_at(seconds: float) -> PodError:
    return PodError(at(seconds), "main", "XID 79")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("strikes"), st.integers(0, 3)),
        st.tuples(st.just("passes"), st.integers(1, 5000)),
        st.tuples(st.just("writes"), st.integers(0, 0)),
        st.tuples(st.just("refused"), st.integers(0, 0)),
        st.tuples(st.just("fails"), st.integers(0, 0)),
        st.tuples(st.just("forgets"), st.integers(0, 0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_error_is_written_once_waits_or_is_counted(steps: list[tuple[str, int]]) -> None:
    queue, now, happened, dropped, written = EventQueue(), 0.0, 0, 0, 0
    last: dict[EventSubject, float] = {}
    times: list[float] = []
    for step, number in steps:
        if step == "passes":
            now += number / 10
        elif step == "strikes":
            happened += 1
            assert queue.add(subject(number), error_at(now))
        elif step == "forgets":
            dropped += queue.expire(at(now), REPEAT)
        elif (work := queue.next(at(now), REPEAT, PER_MINUTE)) is not None:
            found, entry = work
            assert entry.count > 0
            if step == "fails":
                queue.record_failed(entry, at(now))
                continue
            times.append(now)
            assert now - last.get(found, -REPEAT) >= REPEAT
            last[found] = now
            if step == "refused":
                dropped += queue.record_refused(entry, at(now))
                continue
            before = 0 if entry.written is None else entry.written.count
            written += entry.count
            queue.record_written(entry, WrittenEvent("a", before + entry.count), at(now))
        assert happened == written + dropped + queue.waiting
    for start in times:
        assert len([other for other in times if start <= other < start + 60]) <= PER_MINUTE


@given(STEPS)
def test_an_entry_is_due_exactly_when_seconds_left_is_zero(steps: list[tuple[str, int]]) -> None:
    queue, now = EventQueue(), 0.0
    for step, number in steps:
        if step == "passes":
            now += number / 10
        elif step == "strikes":
            queue.add(subject(number), error_at(now))
        elif step == "forgets":
            queue.expire(at(now), REPEAT)
        elif (work := queue.next(at(now), REPEAT, 2)) is not None:
            if step == "fails":
                queue.record_failed(work[1], at(now))
            else:
                queue.record_written(work[1], WrittenEvent("a", 1), at(now))
        remaining = queue.seconds_left(at(now), REPEAT, 2)
        assert (remaining is None) is (queue.waiting == 0)
        if remaining is not None:
            assert (queue.next(at(now), REPEAT, 2) is not None) is (remaining == 0)
            assert queue.next(at(now + remaining + 0.001), REPEAT, 2) is not None


def test_old_entries_expire_written_or_not() -> None:
    queue = EventQueue()
    for pod in range(4):
        queue.add(subject(pod), error_at(0))
    for pod in (0, 1):
        queue.record_written(queue._entries[subject(pod)], WrittenEvent("a", 1), at(10))
    queue.add(subject(1), error_at(20))
    queue.add(subject(2), error_at(30))
    assert queue.expire(at(REMEMBERED), REPEAT) == 0
    assert queue.expire(at(REMEMBERED + 1), REPEAT) == 1
    assert list(queue._entries) == [subject(0), subject(1), subject(2)]
    assert queue.expire(at(REMEMBERED + 31), REPEAT) == 2
    # These were written at 10, so the next may be written at 610 at the earliest.
    assert queue.expire(at(REMEMBERED + REPEAT + 10), REPEAT) == 0
    assert queue.expire(at(REMEMBERED + REPEAT + 11), REPEAT) == 1
    assert queue._entries == {}


def test_retain_drops_unwanted_errors_and_keeps_written_entries() -> None:
    queue = EventQueue()
    for pod in range(3):
        queue.add(subject(pod), error_at(0))
    queue.record_written(queue._entries[subject(0)], WrittenEvent("a", 1), at(10))
    queue.add(subject(0), error_at(20))
    queue.retain(lambda one: one == subject(2))
    assert list(queue._entries) == [subject(2), subject(0)]
    assert queue.waiting == 1
    queue.add(subject(0), error_at(30))
    again = queue._entries[subject(0)]
    assert (again.count, again.first, again.written) == (1, at(30), WrittenEvent("a", 1))
    assert queue._earliest_ns(again, REPEAT) == at(10 + REPEAT).mono_ns


def test_the_number_of_entries_is_bounded() -> None:
    queue = EventQueue()
    for pod in range(MAX_ENTRIES):
        assert queue.add(subject(pod), error_at(0))
    assert not queue.add(subject(MAX_ENTRIES), error_at(0))
    queue.record_written(queue._entries[subject(7)], WrittenEvent("a", 1), at(0))
    assert queue.add(subject(MAX_ENTRIES), error_at(0))
    assert len(queue._entries) == MAX_ENTRIES


def test_an_entry_that_keeps_failing_comes_after_all_others() -> None:
    """The fault may concern only this entry: a failing webhook may apply to one namespace."""
    queue = EventQueue()
    for pod in range(4):
        queue.add(subject(pod), error_at(0))
    queue.record_written(queue._entries[subject(3)], WrittenEvent("a", 1), at(0))
    queue.add(subject(3), error_at(1))
    written = []
    for now in range(1000):
        if (work := queue.next(at(now), REPEAT, PER_MINUTE)) is None:
            continue
        if work[0] == subject(0):
            queue.record_failed(work[1], at(now))
        else:
            written.append(work[0])
            queue.record_written(work[1], WrittenEvent("a", 1), at(now))
    assert written == [subject(1), subject(2), subject(3)]
    assert queue.waiting == 1
