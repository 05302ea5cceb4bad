"""Energy: the counter of a GPU, the idle draw, and MIG instances."""

import pytest

from pipeline.usage.container_accounts import MAX_CONTAINERS
from pipeline.usage.mig_energy import instances_by_gpu
from tests.pipeline.usage.samples import GPU, Book, S, by_pod, container, holder, process
from tests.support.nodes import at, gpu, mig


def energies(book: Book) -> dict[str, int | None]:
    return by_pod(book.account().containers, "energy_mj")


def test_energy_is_the_increase_of_the_counter() -> None:
    book = Book()
    book.hold(0, holder("a", 0.5))
    assert book.sample(0, None, energy=1000).energy_mj is None
    assert book.sample(5, 0, energy=3001).energy_mj == 2001
    # No busy time is known: energy is split by held time.
    assert energies(book) == {"a": 1001}
    assert book.account().energy_unattributed_mj == 1000


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(0, None, 10), (5, 0, 40), (10, 5, 70)], 60),
        # The counter fell: unknown, until it is above the last good reading again.
        ([(0, None, 10), (5, 0, 40), (10, 5, 7), (15, 10, 9)], 30),
        ([(0, None, 10), (5, 0, 40), (10, 5, 7), (15, 10, 49)], 39),
        ([(0, None, 10), (5, 0, 3)], None),
        # It wasn't read: the next reading brings all of it.
        ([(0, None, 10), (5, 0, None), (10, 5, 70), (15, 10, 75)], 65),
        # A break between the samples, and one that can't be bridged.
        ([(0, None, 10), (5, None, 40), (10, 5, 70)], 30),
        ([(0, None, 10), (5, 2, 40), (10, 5, 70)], 30),
        # A sample starts before the last one: energy still counts from the last sample.
        ([(0, None, 10), (5, 0, 40), (10, 3, 70)], 60),
    ],
)
def test_energy_across_breaks_and_wrong_readings(
    samples: list[tuple[float, float | None, int | None]], expected: int | None
) -> None:
    book = Book()
    for when, since, counter in samples:
        book.sample(when, since, energy=counter)
    assert book.account().energy_mj == expected


def test_counters_of_different_sources_are_not_compared() -> None:
    book = Book()
    book.sample(0, None, energy=10)
    assert book.sample(5, 0, energy=900, source="other").energy_mj is None
    assert book.sample(10, 5, energy=930, source="other").energy_mj == 30


def test_idle_energy_is_split_by_held_time_and_the_rest_by_busy_time() -> None:
    book = Book()
    book.hold(0, holder("a", 0.5), holder("b", 0.25))
    book.sample(0, None, energy=0)
    # The idle draw is 100 mW.
    book.sample(10, 0, busy=0, energy=1000)
    assert energies(book) == {"a": 500, "b": 250}
    book.sample(20, 10, process("b", busy=3 * S), process(busy=S), busy=4 * S, energy=6000)
    assert energies(book) == {"a": 500 + 500, "b": 250 + 250 + 3000}
    assert book.account().energy_unattributed_mj == 250 + 250 + 1000


@pytest.mark.parametrize(
    ("seconds", "busy", "learned"),
    [(10, 0, True), (0.9, 0, True), (0.8, 0, False), (10, 1, False), (10, None, False)],
)
def test_the_idle_draw_is_measured_in_intervals_that_are_idle_and_long_enough(
    *, seconds: float, busy: int | None, learned: bool
) -> None:
    book = Book()
    book.hold(0, holder("idle"))
    book.sample(0, None, energy=0)
    book.sample(seconds, 0, busy=busy, energy=round(1000 * seconds))
    before = container(book.account(), "idle").energy_mj
    book.sample(
        seconds + 1, seconds, process("work", busy=S), busy=S, energy=round(1000 * seconds) + 5000
    )
    after = container(book.account(), "idle").energy_mj
    assert before is not None
    assert after is not None
    assert after - before == (1000 if learned else 0)


def test_the_idle_draw_is_the_least_measured_and_never_more_than_the_interval_used() -> None:
    book = Book()
    book.hold(0, holder("idle"))
    book.sample(0, None, energy=0)
    for when, counter in ((10, 3000), (20, 4000), (30, 7000)):
        book.sample(when, when - 10, busy=0, energy=counter)
    book.sample(40, 30, process("work", busy=S), busy=S, energy=7000 + 1500)
    assert energies(book) == {"idle": 7000 + 1000, "work": 500}
    book.sample(50, 40, process("work", busy=S), busy=S, energy=8500 + 700)
    assert energies(book) == {"idle": 8000 + 700, "work": 500}


# -- MIG


@pytest.mark.parametrize(
    ("profile", "number"),
    [
        ("1g.10gb", 1),
        ("3g.40gb", 3),
        ("7g.80gb", 7),
        ("1c.3g.40gb", 1),
        ("1g.10gb+me", 1),
        ("MIG 2g.20gb", 2),
        ("", 1),
        ("none", 1),
        ("0g", 1),
    ],
)
def test_compute_slices_of_a_profile(profile: str, number: int) -> None:
    assert instances_by_gpu([mig(GPU, 1, profile=profile)]) == {
        GPU.uuid: {mig(GPU, 1, profile=profile).uuid: number}
    }


ONE, THREE = mig(GPU, 1), mig(GPU, 2, profile="3g.40gb")


def mig_book() -> Book:
    book = Book(GPU, ONE, THREE)
    book.hold(0, holder("a"), device=ONE)
    book.hold(0, holder("b", 0.5), device=THREE)
    return book


def sample_all(
    book: Book, when: float, since: float | None, energy: int | None, *busy: int | None
) -> list[int | None]:
    """Add samples of both instances and the GPU; return their energies in this order."""
    for device, pod, ns in zip((ONE, THREE), ("a", "b"), busy, strict=False):
        book.sample(when, since, process(pod), device=device, busy=ns)
    book.add(when, since, used=None, reserved=None, energy=energy)
    found = book.usage().devices
    return [found[d.uuid].energy_mj if d.uuid in found else None for d in (ONE, THREE, GPU)]


def test_the_energy_of_a_gpu_is_split_among_its_instances() -> None:
    book = mig_book()
    assert sample_all(book, 0, None, 0, None, None) == [None, None, None]
    # No instance is busy: split by slices; three of seven slices are unused.
    assert sample_all(book, 10, 0, 700, 0, 0) == [100, 300, 300]
    assert by_pod(book.account(THREE).containers, "energy_mj") == {"b": 150}
    assert book.account(THREE).energy_unattributed_mj == 150
    # 70 mW when idle; the rest by busy time times slices: 6 to 2 times 3.
    assert sample_all(book, 20, 10, 1400 + 1200, 6 * S, 2 * S) == [200 + 600, 600 + 600, 600]
    assert by_pod(book.account(ONE).containers, "energy_mj") == {"a": 800}
    assert by_pod(book.account(THREE).containers, "energy_mj") == {"b": 300 + 600}


def test_energy_is_split_by_slices_if_the_busy_time_of_an_instance_is_unknown() -> None:
    book = mig_book()
    sample_all(book, 0, None, 0, None, None)
    assert sample_all(book, 10, 0, 700, None, 5) == [100, 300, 300]


def test_an_instance_without_a_sample_gets_no_energy() -> None:
    book = mig_book()
    sample_all(book, 0, None, 0, None, None)
    assert sample_all(book, 10, 0, 700, 0) == [100, None, 600]
    # The idle draw isn't measured if one of two instances has no sample.
    assert sample_all(book, 20, 10, 1400, S, 0) == [800, 0, 600]


def test_busy_time_before_a_break_of_the_counter_does_not_count_after_it() -> None:
    book = mig_book()
    sample_all(book, 0, None, 0, None, None)
    sample_all(book, 10, 0, None, 9 * S, 0)
    sample_all(book, 20, None, 5000, None, None)
    assert sample_all(book, 30, 20, 6000, 0, S) == [0, 1000, 0]


def test_an_instance_that_is_recreated_starts_without_energy() -> None:
    book = mig_book()
    sample_all(book, 0, None, 0, None, None)
    book.sample(5, 0, process("a"), device=ONE, busy=S)
    book.set_devices(6, GPU, THREE)
    book.set_devices(7, GPU, ONE, THREE)
    assert sample_all(book, 10, 0, 700) == [None, None, 700]


@pytest.mark.slow
def test_pending_amounts_stay_bounded_if_the_energy_of_the_gpu_is_not_read() -> None:
    book = mig_book()
    book.add(0, None, device=ONE)
    for number in range(3 * MAX_CONTAINERS):
        pod = f"p-{number}"
        book.hold(10 * number, holder(pod), device=ONE)
        book.add(10 * number + 5, max(10 * number - 5, 0), process(pod), device=ONE, busy=1)
        book.accounts.expire(at(10 * number))
    pending = book.accounts._accounts[ONE.uuid].containers.pending
    assert pending.busy is not None
    assert max(len(pending.held), len(pending.busy)) < 40
    assert pending.time_ns == sum(pending.held.values()) + pending.unheld_ns


def test_a_container_that_made_room_has_no_pending_amounts() -> None:
    book = mig_book()
    processes = [process(f"q-{n:03}", busy=1) for n in range(MAX_CONTAINERS - 1)]
    book.add(0, None, *processes, device=ONE)
    book.add(5, 0, *processes, device=ONE, busy=len(processes))
    book.add(10, 5, *processes[1:], device=ONE, busy=len(processes) - 1)
    book.hold(11, holder("a"), holder("late"), device=ONE)
    pending = book.accounts._accounts[ONE.uuid].containers.pending
    assert pending.busy is not None
    assert processes[0].container not in pending.busy
    assert processes[1].container in pending.busy
    assert pending.busy_ns == 2 * len(processes) - 1


def test_a_pod_does_not_get_the_busy_time_of_the_pod_before_it() -> None:
    book = mig_book()
    book.sample(0, None, process("a"), device=ONE)
    book.hold(4, holder("b"), device=ONE)
    # Its processes started after those of `a`, and are the only ones in the sample.
    book.sample(5, 0, process("b"), device=ONE, busy=4 * S)
    assert by_pod(book.account(ONE).containers, "busy_ns") == {"a": None, "b": None}
    assert book.account(ONE).busy_unattributed_ns == 4 * S
    book.sample(10, 5, process("b"), device=ONE, busy=S)
    assert by_pod(book.account(ONE).containers, "busy_ns") == {"a": None, "b": S}
    # After a break no earlier processes are known.
    book.sample(20, 15, process("c"), device=ONE, busy=S)
    assert by_pod(book.account(ONE).containers, "busy_ns") == {"a": None, "b": S, "c": S}


def test_a_gpu_with_mig_instances_counts_only_energy() -> None:
    book = mig_book()
    book.hold(0, holder("whole"))
    sample_all(book, 0, None, 0, 0, 0)
    assert GPU.uuid not in book.usage().devices
    sample_all(book, 10, 0, 700, 0, 0)
    gpu_ = book.account(GPU)
    assert (gpu_.containers, gpu_.elapsed_ns, gpu_.busy_ns, gpu_.memory_used_bytes) == (
        (),
        0,
        None,
        None,
    )
    assert gpu_.energy_unattributed_mj == gpu_.energy_mj == 300


def test_a_gpu_that_gets_instances_and_loses_them_continues_its_account() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, process("a", memory=5), used=9, energy=0)
    book.sample(10, 0, process("a", memory=5, busy=S), used=9, busy=S, energy=100)
    book.set_devices(11, GPU, ONE)
    book.sample(12, 10, used=None, energy=150)
    account = book.account()
    assert container(account, "a").ended == at(11)
    assert (account.elapsed_ns, account.busy_ns, account.energy_mj) == (10 * S, S, 150)
    assert account.memory_used_bytes is None
    book.set_devices(13, GPU)
    book.hold(13, holder("a"))
    book.sample(14, None, energy=200)
    book.sample(15, 14, energy=210)
    again = book.account()
    assert container(again, "a").held_ns == 11 * S
    assert (again.elapsed_ns, again.energy_mj) == (11 * S, 160)


def test_more_slices_than_a_gpu_has_get_all_of_its_energy() -> None:
    instances = [mig(GPU, gi, profile="4g.40gb") for gi in range(2)]
    book = Book(GPU, *instances, gpu(1))
    for when, since, energy in ((0, None, 0), (10, 0, 80)):
        for device in instances:
            book.sample(when, since, device=device, busy=0)
        book.add(when, since, used=None, energy=energy)
    assert [book.account(device).energy_mj for device in (*instances, GPU)] == [40, 40, 0]
