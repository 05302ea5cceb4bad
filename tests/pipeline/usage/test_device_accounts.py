"""The account of a device: when it starts, what it counts, and how long it keeps containers."""

import pytest

from pipeline.usage.container_accounts import MAX_CONTAINERS, RETENTION_NS
from pipeline.usage.holder_timeline import MAX_CHANGES
from tests.pipeline.usage.samples import (
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


# -- which time is counted


def test_an_account_starts_with_the_first_sample() -> None:
    book = Book()
    book.hold(1, holder("a"))
    assert book.usage().devices == {}
    first = book.sample(5, 2, process("a", busy=S), busy=S)
    assert (first.start, first.at, first.elapsed_ns, first.busy_ns) == (at(5), at(5), 0, None)
    assert book.held() == {"a": 0}
    second = book.sample(10, 5, process("a", busy=S), busy=S)
    assert (second.start, second.at, second.elapsed_ns, second.busy_ns) == (at(5), at(10), 5 * S, S)
    assert book.held() == {"a": 5 * S}


@pytest.mark.parametrize(
    ("when", "since", "elapsed", "busy", "until"),
    [
        (10, 5, 5 * S, 400, 10),
        # A break: the time in between is not counted.
        (10, None, 0, None, 10),
        (10, 8, 2 * S, 400, 10),
        # It starts before the last sample: time is counted from there on, and never twice.
        (10, 0, 5 * S, 200, 10),
        (10, 4, 5 * S, 333, 10),
        # Not newer than the last sample.
        (5, 0, 0, None, 5),
        (4, 3, 0, None, 5),
        # A start that is not before the sample.
        (10, 11, 0, None, 10),
        (10, 10, 0, None, 10),
    ],
)
def test_time_is_counted_from_sample_to_sample(
    *, when: float, since: float | None, elapsed: int, busy: int | None, until: float
) -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(5, None)
    found = book.sample(when, since, process("a", busy=400), busy=400)
    assert (found.elapsed_ns, found.busy_ns, found.at) == (elapsed, busy, at(until))
    assert container(found, "a").held_ns == elapsed
    assert container(found, "a").busy_ns == busy


def test_holders_that_change_after_a_sample_was_taken_count_after_it() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(5, None)
    # The sample was taken at 10, and is added after the next holder is known.
    book.hold(10.5, holder("b"))
    book.hold(11)
    book.sample(10, 5)
    assert book.held() == {"a": 5 * S, "b": 0}
    book.sample(15, 10)
    assert book.held() == {"a": 5 * S + S // 2, "b": S // 2}
    assert book.account().unheld_ns == 4 * S


def test_a_pod_of_300_ms_between_two_samples_is_counted() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(1.1, holder("a"))
    book.hold(1.4)
    book.sample(5, 0, process("a", busy=200 * MS, there=False), busy=200 * MS)
    one = container(book.account(), "a")
    assert (one.start, one.ended) == (at(1.1), at(1.4))
    assert (one.held_ns, one.busy_ns) == (300 * MS, 200 * MS)
    assert book.account().busy_unattributed_ns == 0


def test_held_time_before_the_oldest_kept_change_of_holders_is_unattributed() -> None:
    book = Book()
    book.sample(0, None)
    for number in range(2 * MAX_CHANGES):
        book.hold(1 + number, holder("a", [0.5, 1.0][number % 2]))
    book.sample(1 + 2 * MAX_CHANGES, 0)
    # The time before the oldest change that is kept is unattributed.
    assert book.account().unheld_ns == (1 + MAX_CHANGES) * S + MAX_CHANGES // 2 * S // 2
    assert book.held() == {"a": MAX_CHANGES * S * 3 // 4}


@pytest.mark.parametrize(("energy", "part"), [(50, 10), (0, 0)])
def test_a_short_idle_holder_between_two_samples_gets_held_time_and_idle_energy(
    energy: int, part: int
) -> None:
    book = Book()
    book.sample(0, None, energy=0)
    book.hold(1, holder("a"))
    book.hold(2)
    one = container(book.sample(5, 0, busy=0, energy=energy), "a")
    assert (one.held_ns, one.busy_ns, one.energy_mj) == (S, 0, part)


# -- containers


def test_a_container_may_hold_a_device_without_using_it_and_use_it_without_holding_it() -> None:
    book = Book()
    book.hold(0, holder("idle"))
    book.sample(0, None, process("guest", memory=70), used=100, reserved=10)
    book.sample(10, 0, process("guest", memory=70, busy=S), used=100, reserved=10, busy=S)
    containers = book.account().containers
    assert by_pod(containers, "held_ns") == {"guest": 0, "idle": 10 * S}
    assert by_pod(containers, "busy_ns") == {"guest": S, "idle": 0}
    assert by_pod(containers, "memory_bytes") == {"guest": 70, "idle": 0}
    assert book.account().memory_unattributed_bytes == 20


def test_holders_have_unknown_usage_while_a_process_has_an_unknown_owner() -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    for when in (0, 5):
        stray = process(known=False, memory=70, busy=S)
        book.sample(when, when - 5 if when else None, stray, used=100, busy=S)
    containers = book.account().containers
    assert by_pod(containers, "memory_bytes") == {"a": None, "b": None}
    assert by_pod(containers, "busy_ns") == {"a": None, "b": None}
    assert book.account().memory_unattributed_bytes == 100
    assert book.account().busy_unattributed_ns == S


def test_a_process_of_unknown_owner_is_attributed_to_a_single_holder() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    book.sample(5, 0, process(known=False, memory=70, busy=S), used=100, busy=S)
    assert container(book.account(), "a").memory_bytes == 70
    assert container(book.account(), "a").busy_ns == S
    # For busy time, all holders within the interval count.
    book.hold(6, holder("b"))
    book.sample(10, 5, process(known=False, memory=70, busy=S), used=100, busy=S)
    assert by_pod(book.account().containers, "busy_ns") == {"a": S, "b": None}
    assert book.account().busy_unattributed_ns == S
    # For memory, the holders at the time of the sample count.
    assert by_pod(book.account().containers, "memory_bytes") == {"a": None, "b": 70}


def test_a_container_does_not_end_when_processes_cannot_be_listed() -> None:
    book = Book()
    book.sample(0, None, process("a", memory=70), used=100)
    found = book.sample(5, 0, used=100, listed=False)
    assert container(found, "a").ended is None
    assert container(found, "a").memory_bytes is None
    assert found.memory_unattributed_bytes == 100
    assert container(book.sample(10, 5, used=100), "a").ended == at(10)


def test_memory_is_valid_until_its_sample_expires() -> None:
    book = Book()
    book.sample(0, None, process("a", memory=70, busy=1), used=100, energy=5)
    assert not book.accounts.expire(at(15))
    before = book.usage()
    assert before.devices[GPU.uuid].memory_used_bytes == 100
    assert book.accounts.expire(at(15.1))
    after = book.account()
    assert after.memory_used_bytes is None
    assert container(after, "a").memory_bytes is None
    assert container(after, "a").ended is None
    assert not book.accounts.expire(at(15.2))


# -- ends


def test_a_container_ends_when_it_neither_holds_nor_uses_the_device() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, process("a", memory=5), used=9)
    book.hold(2)
    assert container(book.account(), "a").ended is None
    # Its processes ended in between: when it released the device, as far as is known.
    book.sample(5, 0, used=9)
    assert container(book.account(), "a").ended == at(2)
    assert container(book.account(), "a").memory_bytes is None
    book.hold(6, holder("a"))
    assert container(book.account(), "a").ended is None
    book.hold(7)
    assert container(book.account(), "a").ended == at(7)


def test_a_container_ends_at_the_latest_moment_that_is_known() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, process("a"))
    book.hold(5.5)
    # The sample was taken before that.
    book.sample(5, 0)
    assert container(book.account(), "a").ended == at(5.5)


def test_an_ended_container_is_forgotten_after_a_while_and_its_totals_are_kept() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, energy=0)
    book.sample(10, 0, process("a", busy=S, there=False), busy=S, energy=900)
    book.hold(10)
    before = book.account()
    book.accounts.expire(at(10 + KEPT))
    assert container(book.account(), "a").energy_mj == 900
    assert book.accounts.expire(at(10.001 + KEPT))
    after = book.account()
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
def test_a_container_that_returns_in_time_continues_its_account(
    back: float, continues: bool
) -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    book.sample(10, 0)
    book.hold(10)
    book.accounts.expire(at(10 + back))
    book.hold(10 + back, holder("a"))
    one = container(book.account(), "a")
    assert (one.held_ns, one.start) == ((10 * S, at(0)) if continues else (0, at(10 + back)))


def test_a_pod_with_another_uid_has_another_account() -> None:
    book = Book()
    first, second = ("ml", "a", "main", "uid-1"), ("ml", "a", "main", "uid-2")
    book.sample(0, None)
    book.sample(5, 0, process(first, busy=S), busy=S)
    book.sample(10, 5, process(second, busy=7), busy=7)
    assert [(c.subject.uid, c.busy_ns, c.start) for c in book.account().containers] == [
        ("uid-1", S, at(0)),
        ("uid-2", 7, at(5)),
    ]


def test_containers_above_the_limit_are_counted_and_their_usage_is_unattributed() -> None:
    book = Book()
    processes = [process(f"pod-{n:03}", memory=1, busy=1) for n in range(MAX_CONTAINERS + 3)]
    book.hold(0, holder("pod-999"))
    book.sample(0, None, *processes, used=1000)
    found = book.sample(5, 0, *processes, used=1000, busy=len(processes))
    assert len(found.containers) == MAX_CONTAINERS
    # The holder got its account first.
    assert container(found, "pod-999").held_ns == 5 * S
    assert book.usage().rejected_containers == 4
    assert found.busy_unattributed_ns == 4
    assert found.memory_unattributed_bytes == 1000 - MAX_CONTAINERS + 1
    book.sample(10, 5, *processes[:9], used=1000, busy=9)
    assert book.usage().rejected_containers == 0


def test_a_container_above_the_limit_gets_no_held_time() -> None:
    book = Book()
    processes = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS)]
    book.sample(0, None, *processes)
    book.hold(1, holder("late"))
    found = book.sample(5, 0, *processes, process(known=False, busy=S, memory=5), used=9, busy=S)
    assert (found.unheld_ns, found.busy_unattributed_ns) == (5 * S, S)
    assert found.memory_unattributed_bytes == 9
    assert book.usage().rejected_containers == 1


def test_the_container_that_ended_first_makes_room_for_a_new_one() -> None:
    book = Book()
    processes = [process(f"pod-{n:03}", busy=1) for n in range(MAX_CONTAINERS)]
    book.sample(0, None, *processes)
    book.sample(5, 0, *processes, busy=len(processes))
    book.sample(10, 5, *processes[1:])
    book.sample(15, 10, *processes[2:])
    found = book.sample(20, 15, *processes[2:], process("late"))
    pods = {one.subject.pod for one in found.containers}
    assert "late" in pods
    assert "pod-000" not in pods
    assert "pod-001" in pods
    assert found.forgotten_busy_ns == 1
    assert book.usage().rejected_containers == 0


def test_a_container_that_made_room_starts_at_zero_when_it_is_seen_again() -> None:
    book = Book()
    processes = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS - 2)]
    book.hold(0, holder("a"), holder("z"))
    book.sample(0, None, *processes)
    book.hold(3)
    book.hold(4, holder("b"))
    assert "a" not in book.held()
    again = container(book.sample(5, 0, *processes), "a")
    assert (again.start, again.ended, again.held_ns) == (at(3), at(3), 0)


# -- which devices are shown


def test_usage_that_has_not_changed_is_the_same_object() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.sample(0, None)
    book.sample(0, None, device=other)
    before = book.usage()
    assert book.usage() is before
    book.accounts.update_holders(dict(book.attributions), at(1))
    assert book.usage() is before
    book.sample(5, 0)
    after = book.usage()
    assert after is not before
    assert after.devices[other.uuid] is before.devices[other.uuid]
    assert list(after.devices) == [GPU.uuid, other.uuid]


def test_a_removed_device_is_not_shown_and_continues_if_it_returns_in_time() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.hold(0, holder("a"), device=other)
    book.sample(0, None, device=other)
    book.sample(10, 0, device=other)
    book.set_devices(11, GPU)
    assert book.usage().devices == {}
    book.set_devices(12, GPU, other)
    assert book.held(other) == {"a": 10 * S}
    book.set_devices(13, GPU)
    book.accounts.expire(at(13.1 + KEPT))
    book.set_devices(14 + KEPT, GPU, other)
    assert book.usage().devices == {}
    assert book.sample(15 + KEPT, 10, device=other).elapsed_ns == 0


def test_memory_of_a_device_that_returns_is_unknown_until_the_next_sample() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.sample(0, None, process("a", memory=5), device=other, used=9)
    book.set_devices(1, GPU)
    book.set_devices(2, GPU, other)
    assert book.account(other).memory_used_bytes is None


# -- processes can't be listed


def test_without_a_process_list_all_but_reserved_memory_is_the_single_holders() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, used=100, reserved=10, listed=False)
    assert container(book.account(), "a").memory_bytes == 90
    # Only while it holds the device.
    book.hold(3)
    assert container(book.account(), "a").memory_bytes is None
    assert book.account().memory_unattributed_bytes == 90
    book.hold(4, holder("a"), holder("b"))
    book.sample(5, 0, used=100, reserved=10, listed=False)
    assert by_pod(book.account().containers, "memory_bytes") == {"a": None, "b": None}


@pytest.mark.parametrize("busy", [0, S])
def test_without_a_process_list_several_holders_have_unknown_busy_time(busy: int) -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.sample(0, None, listed=False)
    book.sample(5, 0, busy=busy, listed=False)
    assert by_pod(book.account().containers, "busy_ns") == {"a": None, "b": None}
    assert book.account().busy_unattributed_ns == busy


def test_a_container_seen_before_ends_some_time_after_processes_cannot_be_listed() -> None:
    book = Book()
    book.sample(0, None, process("a"))
    book.sample(15, 0, listed=False)
    assert container(book.account(), "a").ended is None
    book.sample(20, 15, listed=False)
    assert container(book.account(), "a").ended == at(20)
