"""Whatever happens in whatever order, each error is told once, waits or was counted as dropped."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS, Instant
from sinks.events.work_queue import MAX_ENTRIES, REMEMBERED, EventQueue, WrittenEvent
from sinks.events.xid_errors import EventSubject, PodError

REPEAT, PER_MINUTE = 600.0, 30


def struck(pod: int, code: int = 31) -> EventSubject:
    return EventSubject("ml", f"pod-{pod}", f"uid-{pod}", "GPU-0", code)


def at(seconds: float) -> Instant:
    return Instant(round(seconds * NS), 1_700_000_000 * NS + round(seconds * NS))


def stroke(seconds: float) -> PodError:
    return PodError(at(seconds), "main", True, True, False, False, None, "")


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
def test_no_error_is_reported_twice_or_forgotten(steps: list[tuple[str, int]]) -> None:
    agenda, now, happened, dropped, written = EventQueue(), 0.0, 0, 0, 0
    last: dict[EventSubject, float] = {}
    times: list[float] = []
    for step, number in steps:
        if step == "passes":
            now += number / 10
        elif step == "strikes":
            happened += 1
            assert agenda.add(struck(number), stroke(now))
        elif step == "forgets":
            dropped += agenda.expire(at(now), REPEAT)
        elif (work := agenda.next(at(now), REPEAT, PER_MINUTE)) is not None:
            whom, entry = work
            assert entry.count > 0
            if step == "fails":
                agenda.record_failed(entry, at(now))
                continue
            times.append(now)
            assert now - last.get(whom, -REPEAT) >= REPEAT
            last[whom] = now
            if step == "refused":
                dropped += agenda.record_refused(entry, at(now))
                continue
            before = 0 if entry.written is None else entry.written.count
            written += entry.count
            agenda.record_written(
                entry, WrittenEvent("a", before + entry.count), entry.count, at(now)
            )
        assert happened == written + dropped + agenda.waiting
    for begun in times:
        assert len([other for other in times if begun <= other < begun + 60]) <= PER_MINUTE


@given(STEPS)
def test_what_is_due_is_there_when_it_is_said_to_be(steps: list[tuple[str, int]]) -> None:
    agenda, now = EventQueue(), 0.0
    for step, number in steps:
        if step == "passes":
            now += number / 10
        elif step == "strikes":
            agenda.add(struck(number), stroke(now))
        elif step == "forgets":
            agenda.expire(at(now), REPEAT)
        elif (work := agenda.next(at(now), REPEAT, 2)) is not None:
            if step == "fails":
                agenda.record_failed(work[1], at(now))
            else:
                agenda.record_written(work[1], WrittenEvent("a", 1), work[1].count, at(now))
        left = agenda.seconds_left(at(now), REPEAT, 2)
        assert (left is None) is (agenda.waiting == 0)
        if left is not None:
            assert (agenda.next(at(now), REPEAT, 2) is not None) is (left == 0)
            assert agenda.next(at(now + left + 0.001), REPEAT, 2) is not None


def test_what_is_old_is_forgotten_reported_or_not() -> None:
    agenda = EventQueue()
    for pod in range(4):
        agenda.add(struck(pod), stroke(0))
    for pod in (0, 1):
        agenda.record_written(agenda._entries[struck(pod)], WrittenEvent("a", 1), 1, at(10))
    agenda.add(struck(1), stroke(20))
    agenda.add(struck(2), stroke(30))
    assert agenda.expire(at(REMEMBERED), REPEAT) == 0
    assert agenda.expire(at(REMEMBERED + 1), REPEAT) == 1
    assert list(agenda._entries) == [struck(0), struck(1), struck(2)]
    assert agenda.expire(at(REMEMBERED + 31), REPEAT) == 2
    # These were written at 10, so that no other may be written before 610.
    assert agenda.expire(at(REMEMBERED + REPEAT + 10), REPEAT) == 0
    assert agenda.expire(at(REMEMBERED + REPEAT + 11), REPEAT) == 1
    assert agenda._entries == {}


def test_what_no_one_wants_reported_is_reported_no_more_and_what_was_reported_stays_known() -> None:
    agenda = EventQueue()
    for pod in range(3):
        agenda.add(struck(pod), stroke(0))
    agenda.record_written(agenda._entries[struck(0)], WrittenEvent("a", 1), 1, at(10))
    agenda.add(struck(0), stroke(20))
    agenda.retain(lambda whom: whom == struck(2))
    assert list(agenda._entries) == [struck(2), struck(0)]
    assert agenda.waiting == 1
    agenda.add(struck(0), stroke(30))
    again = agenda._entries[struck(0)]
    assert (again.count, again.first, again.written) == (1, at(30), WrittenEvent("a", 1))
    assert agenda._due_ns(again, REPEAT) == at(10 + REPEAT).mono_ns


def test_what_is_remembered_is_bounded() -> None:
    agenda = EventQueue()
    for pod in range(MAX_ENTRIES):
        assert agenda.add(struck(pod), stroke(0))
    assert not agenda.add(struck(MAX_ENTRIES), stroke(0))
    agenda.record_written(agenda._entries[struck(7)], WrittenEvent("a", 1), 1, at(0))
    assert agenda.add(struck(MAX_ENTRIES), stroke(0))
    assert len(agenda._entries) == MAX_ENTRIES


def test_one_that_fails_again_and_again_comes_behind_all_others() -> None:
    """Its fault may be its own: a webhook that is dead may look at one namespace alone."""
    agenda = EventQueue()
    for pod in range(4):
        agenda.add(struck(pod), stroke(0))
    agenda.record_written(agenda._entries[struck(3)], WrittenEvent("a", 1), 1, at(0))
    agenda.add(struck(3), stroke(1))
    written = []
    for now in range(1000):
        if (work := agenda.next(at(now), REPEAT, PER_MINUTE)) is None:
            continue
        if work[0] == struck(0):
            agenda.record_failed(work[1], at(now))
        else:
            written.append(work[0])
            agenda.record_written(work[1], WrittenEvent("a", 1), work[1].count, at(now))
    assert written == [struck(1), struck(2), struck(3)]
    assert agenda.waiting == 1
