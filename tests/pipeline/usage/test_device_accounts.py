"""The account of a device: when it begins, what is counted, and for how long it is kept."""

import pytest

from pipeline.usage.container_accounts import MAX_CONTAINERS, RETENTION_NS
from pipeline.usage.holder_timeline import MAX_CHANGES
from tests.pipeline.usage.looking import (
    GPU,
    MS,
    Book,
    S,
    by_pod,
    container,
    holder,
    process,
)
from tests.support.nodes import at, gpu

KEPT = RETENTION_NS // S


# -- what time is counted


def test_it_begins_with_the_first_look() -> None:
    book = Book()
    book.hold(1, holder("a"))
    assert book.usage().devices == {}
    first = book.look(5, 2, process("a", busy=S), busy=S)
    assert (first.start, first.at, first.elapsed_ns, first.busy_ns) == (at(5), at(5), 0, None)
    assert book.held() == {"a": 0}
    second = book.look(10, 5, process("a", busy=S), busy=S)
    assert (second.start, second.at, second.elapsed_ns, second.busy_ns) == (at(5), at(10), 5 * S, S)
    assert book.held() == {"a": 5 * S}


@pytest.mark.parametrize(
    ("when", "since", "elapsed", "busy", "until"),
    [
        (10, 5, 5 * S, 400, 10),
        # A break: what lies between is in nothing.
        (10, None, 0, None, 10),
        (10, 8, 2 * S, 400, 10),
        # It reaches back before the last look: it counts from there on, and never twice.
        (10, 0, 5 * S, 200, 10),
        (10, 4, 5 * S, 333, 10),
        # Nothing new, or from before.
        (5, 0, 0, None, 5),
        (4, 3, 0, None, 5),
        # Nonsense.
        (10, 11, 0, None, 10),
        (10, 10, 0, None, 10),
    ],
)
def test_time_is_counted_from_look_to_look(
    *, when: float, since: float | None, elapsed: int, busy: int | None, until: float
) -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(5, None)
    found = book.look(when, since, process("a", busy=400), busy=400)
    assert (found.elapsed_ns, found.busy_ns, found.at) == (elapsed, busy, at(until))
    assert container(found, "a").held_ns == elapsed
    assert container(found, "a").busy_ns == busy


def test_a_change_of_holders_while_a_look_is_under_way() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(5, None)
    # The look was taken at 10, and is heard of when the next holder is known already.
    book.hold(10.5, holder("b"))
    book.hold(11)
    book.look(10, 5)
    assert book.held() == {"a": 5 * S, "b": 0}
    book.look(15, 10)
    assert book.held() == {"a": 5 * S + S // 2, "b": S // 2}
    assert book.of().unheld_ns == 4 * S


def test_a_pod_of_300_ms_between_two_looks() -> None:
    book = Book()
    book.look(0, None)
    book.hold(1.1, holder("a"))
    book.hold(1.4)
    book.look(5, 0, process("a", busy=200 * MS, there=False), busy=200 * MS)
    one = container(book.of(), "a")
    assert (one.start, one.ended) == (at(1.1), at(1.4))
    assert (one.held_ns, one.busy_ns) == (300 * MS, 200 * MS)
    assert book.of().busy_unattributed_ns == 0


def test_more_changes_than_are_kept_in_mind() -> None:
    book = Book()
    book.look(0, None)
    for number in range(2 * MAX_CHANGES):
        book.hold(1 + number, holder("a", [0.5, 1.0][number % 2]))
    book.look(1 + 2 * MAX_CHANGES, 0)
    # What lies before those is nobody's.
    assert book.of().unheld_ns == (1 + MAX_CHANGES) * S + MAX_CHANGES // 2 * S // 2
    assert book.held() == {"a": MAX_CHANGES * S * 3 // 4}


@pytest.mark.parametrize(("energy", "its"), [(50, 10), (0, 0)])
def test_one_that_came_and_went_between_two_looks_and_did_nothing(energy: int, its: int) -> None:
    book = Book()
    book.look(0, None, energy=0)
    book.hold(1, holder("a"))
    book.hold(2)
    one = container(book.look(5, 0, busy=0, energy=energy), "a")
    assert (one.held_ns, one.busy_ns, one.energy_mj) == (S, 0, its)


# -- what is known of containers


def test_one_may_hold_and_not_use_and_use_and_not_hold() -> None:
    book = Book()
    book.hold(0, holder("idle"))
    book.look(0, None, process("guest", memory=70), used=100, reserved=10)
    book.look(10, 0, process("guest", memory=70, busy=S), used=100, reserved=10, busy=S)
    containers = book.of().containers
    assert by_pod(containers, "held_ns") == {"guest": 0, "idle": 10 * S}
    assert by_pod(containers, "busy_ns") == {"guest": S, "idle": 0}
    assert by_pod(containers, "memory_bytes") == {"guest": 70, "idle": 0}
    assert book.of().memory_unattributed_bytes == 20


def test_where_no_one_can_report_whose_a_process_is_no_container_is_said_to_have_nothing() -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    for when in (0, 5):
        who = process(known=False, memory=70, busy=S)
        book.look(when, when - 5 if when else None, who, used=100, busy=S)
    containers = book.of().containers
    assert by_pod(containers, "memory_bytes") == {"a": None, "b": None}
    assert by_pod(containers, "busy_ns") == {"a": None, "b": None}
    assert book.of().memory_unattributed_bytes == 100
    assert book.of().busy_unattributed_ns == S


def test_where_one_container_holds_the_device_it_is_its() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    book.look(5, 0, process(known=False, memory=70, busy=S), used=100, busy=S)
    assert container(book.of(), "a").memory_bytes == 70
    assert container(book.of(), "a").busy_ns == S
    # For busy time those count who held it in whatever part of the interval, ...
    book.hold(6, holder("b"))
    book.look(10, 5, process(known=False, memory=70, busy=S), used=100, busy=S)
    assert by_pod(book.of().containers, "busy_ns") == {"a": S, "b": None}
    assert book.of().busy_unattributed_ns == S
    # ... for memory those who hold it at the look.
    assert by_pod(book.of().containers, "memory_bytes") == {"a": None, "b": 70}


def test_where_processes_cannot_be_listed_no_one_is_said_to_have_gone() -> None:
    book = Book()
    book.look(0, None, process("a", memory=70), used=100)
    found = book.look(5, 0, used=100, listed=False)
    assert container(found, "a").ended is None
    assert container(found, "a").memory_bytes is None
    assert found.memory_unattributed_bytes == 100
    assert container(book.look(10, 5, used=100), "a").ended == at(10)


def test_memory_stands_for_as_long_as_the_look_is_good() -> None:
    book = Book()
    book.look(0, None, process("a", memory=70, busy=1), used=100, energy=5)
    assert not book.accounts.expire(at(15))
    before = book.usage()
    assert before.devices[GPU.uuid].memory_used_bytes == 100
    assert book.accounts.expire(at(15.1))
    after = book.of()
    assert after.memory_used_bytes is None
    assert container(after, "a").memory_bytes is None
    assert container(after, "a").ended is None
    assert not book.accounts.expire(at(15.2))


# -- ends


def test_a_container_ends_when_it_neither_holds_nor_uses() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, process("a", memory=5), used=9)
    book.hold(2)
    assert container(book.of(), "a").ended is None
    # Its processes have gone meanwhile: with it, as far as anybody can tell.
    book.look(5, 0, used=9)
    assert container(book.of(), "a").ended == at(2)
    assert container(book.of(), "a").memory_bytes is None
    book.hold(6, holder("a"))
    assert container(book.of(), "a").ended is None
    book.hold(7)
    assert container(book.of(), "a").ended == at(7)


def test_it_ends_with_what_is_heard_of_last() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, process("a"))
    book.hold(5.5)
    # The look was taken before that.
    book.look(5, 0)
    assert container(book.of(), "a").ended == at(5.5)


def test_it_is_kept_for_a_while_and_what_it_had_for_ever() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, energy=0)
    book.look(10, 0, process("a", busy=S, there=False), busy=S, energy=900)
    book.hold(10)
    before = book.of()
    book.accounts.expire(at(10 + KEPT))
    assert container(book.of(), "a").energy_mj == 900
    assert book.accounts.expire(at(10.001 + KEPT))
    after = book.of()
    assert after.containers == ()
    assert (after.forgotten_held_ns, after.forgotten_busy_ns, after.forgotten_energy_mj) == (
        10 * S,
        S,
        900,
    )
    assert (after.elapsed_ns, after.busy_ns, after.energy_mj) == (
        before.elapsed_ns,
        before.busy_ns,
        before.energy_mj,
    )


@pytest.mark.parametrize(("back", "continues"), [(KEPT - 1, True), (KEPT + 1, False)])
def test_one_that_comes_back_in_time_continues(back: float, continues: bool) -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    book.look(10, 0)
    book.hold(10)
    book.accounts.expire(at(10 + back))
    book.hold(10 + back, holder("a"))
    one = container(book.of(), "a")
    assert (one.held_ns, one.start) == ((10 * S, at(0)) if continues else (0, at(10 + back)))


def test_another_uid_is_another_container() -> None:
    book = Book()
    first, second = ("ml", "a", "main", "uid-1"), ("ml", "a", "main", "uid-2")
    book.look(0, None)
    book.look(5, 0, process(first, busy=S), busy=S)
    book.look(10, 5, process(second, busy=7), busy=7)
    assert [(c.subject.uid, c.busy_ns, c.start) for c in book.of().containers] == [
        ("uid-1", S, at(0)),
        ("uid-2", 7, at(5)),
    ]


def test_those_who_find_no_room_are_counted_and_what_they_use_is_unattributed() -> None:
    book = Book()
    crowd = [process(f"pod-{n:03}", memory=1, busy=1) for n in range(MAX_CONTAINERS + 3)]
    book.hold(0, holder("pod-999"))
    book.look(0, None, *crowd, used=1000)
    found = book.look(5, 0, *crowd, used=1000, busy=len(crowd))
    assert len(found.containers) == MAX_CONTAINERS
    # The one that holds the device was there first.
    assert container(found, "pod-999").held_ns == 5 * S
    assert book.usage().rejected_containers == 4
    assert found.busy_unattributed_ns == 4
    assert found.memory_unattributed_bytes == 1000 - MAX_CONTAINERS + 1
    book.look(10, 5, *crowd[:9], used=1000, busy=9)
    assert book.usage().rejected_containers == 0


def test_one_that_finds_no_room_holds_nothing() -> None:
    book = Book()
    crowd = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS)]
    book.look(0, None, *crowd)
    book.hold(1, holder("late"))
    found = book.look(5, 0, *crowd, process(known=False, busy=S, memory=5), used=9, busy=S)
    assert (found.unheld_ns, found.busy_unattributed_ns) == (5 * S, S)
    assert found.memory_unattributed_bytes == 9
    assert book.usage().rejected_containers == 1


def test_who_ended_first_makes_room_before_its_time() -> None:
    book = Book()
    crowd = [process(f"pod-{n:03}", busy=1) for n in range(MAX_CONTAINERS)]
    book.look(0, None, *crowd)
    book.look(5, 0, *crowd, busy=len(crowd))
    book.look(10, 5, *crowd[1:])
    book.look(15, 10, *crowd[2:])
    found = book.look(20, 15, *crowd[2:], process("late"))
    pods = {one.subject.pod for one in found.containers}
    assert "late" in pods
    assert "pod-000" not in pods
    assert "pod-001" in pods
    assert found.forgotten_busy_ns == 1
    assert book.usage().rejected_containers == 0


def test_who_made_room_and_is_met_again_has_nothing_of_before() -> None:
    book = Book()
    crowd = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS - 2)]
    book.hold(0, holder("a"), holder("z"))
    book.look(0, None, *crowd)
    book.hold(3)
    book.hold(4, holder("b"))
    assert "a" not in book.held()
    again = container(book.look(5, 0, *crowd), "a")
    assert (again.start, again.ended, again.held_ns) == (at(3), at(3), 0)


# -- which devices are shown


def test_what_has_not_changed_stays_the_same_object() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.look(0, None)
    book.look(0, None, device=other)
    before = book.usage()
    assert book.usage() is before
    book.accounts.update_holders(dict(book.attributions), at(1))
    assert book.usage() is before
    book.look(5, 0)
    after = book.usage()
    assert after is not before
    assert after.devices[other.uuid] is before.devices[other.uuid]
    assert list(after.devices) == [GPU.uuid, other.uuid]


def test_a_device_that_is_gone_is_not_shown_and_continues_when_it_is_back_in_time() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.hold(0, holder("a"), device=other)
    book.look(0, None, device=other)
    book.look(10, 0, device=other)
    book.have(11, GPU)
    assert book.usage().devices == {}
    book.have(12, GPU, other)
    assert book.held(other) == {"a": 10 * S}
    book.have(13, GPU)
    book.accounts.expire(at(13.1 + KEPT))
    book.have(14 + KEPT, GPU, other)
    assert book.usage().devices == {}
    assert book.look(15 + KEPT, 10, device=other).elapsed_ns == 0


def test_memory_of_a_device_that_was_gone_is_unknown_until_it_is_looked_at() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.look(0, None, process("a", memory=5), device=other, used=9)
    book.have(1, GPU)
    book.have(2, GPU, other)
    assert book.of(other).memory_used_bytes is None


# -- where no process can be seen


def test_all_but_the_drivers_memory_is_that_of_the_one_that_holds_it() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, used=100, reserved=10, listed=False)
    assert container(book.of(), "a").memory_bytes == 90
    # As long as it does.
    book.hold(3)
    assert container(book.of(), "a").memory_bytes is None
    assert book.of().memory_unattributed_bytes == 90
    book.hold(4, holder("a"), holder("b"))
    book.look(5, 0, used=100, reserved=10, listed=False)
    assert by_pod(book.of().containers, "memory_bytes") == {"a": None, "b": None}


@pytest.mark.parametrize("busy", [0, S])
def test_of_several_that_hold_it_none_is_said_to_have_done_nothing(busy: int) -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.look(0, None, listed=False)
    book.look(5, 0, busy=busy, listed=False)
    assert by_pod(book.of().containers, "busy_ns") == {"a": None, "b": None}
    assert book.of().busy_unattributed_ns == busy


def test_who_was_seen_before_is_believed_to_be_there_for_a_while() -> None:
    book = Book()
    book.look(0, None, process("a"))
    book.look(15, 0, listed=False)
    assert container(book.of(), "a").ended is None
    book.look(20, 15, listed=False)
    assert container(book.of(), "a").ended == at(20)
