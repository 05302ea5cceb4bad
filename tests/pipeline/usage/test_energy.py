"""Energy: the counter of a GPU, what the GPU draws when idle, and MIG instances."""

import pytest

from pipeline.usage.container_accounts import MAX_CONTAINERS
from pipeline.usage.mig_energy import compute_slices
from tests.pipeline.usage.looking import GPU, Book, S, by_pod, container, holder, process
from tests.support.nodes import at, gpu, mig


def energies(book: Book) -> dict[str, int | None]:
    return by_pod(book.of().containers, "energy_mj")


def test_it_is_the_difference_of_the_counter() -> None:
    book = Book()
    book.hold(0, holder("a", 0.5))
    assert book.look(0, None, energy=1000).energy_mj is None
    assert book.look(5, 0, energy=3001).energy_mj == 2001
    # Nothing is known to have been busy: by held time.
    assert energies(book) == {"a": 1001}
    assert book.of().energy_unattributed_mj == 1000


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0, None, 10), (5, 0, 40), (10, 5, 70)], 60),
        # The counter fell: unknown, until it is above the last good reading again.
        ([(0, None, 10), (5, 0, 40), (10, 5, 7), (15, 10, 9)], 30),
        ([(0, None, 10), (5, 0, 40), (10, 5, 7), (15, 10, 49)], 39),
        ([(0, None, 10), (5, 0, 3)], None),
        # It wasn't read: the next reading brings all of it.
        ([(0, None, 10), (5, 0, None), (10, 5, 70), (15, 10, 75)], 65),
        # A break in the looks, and one that can't be bridged.
        ([(0, None, 10), (5, None, 40), (10, 5, 70)], 30),
        ([(0, None, 10), (5, 2, 40), (10, 5, 70)], 30),
        # It reaches back: the counter tells from the last look on all the same.
        ([(0, None, 10), (5, 0, 40), (10, 3, 70)], 60),
    ],
)
def test_breaks(looks: list[tuple[float, float | None, int | None]], expected: int | None) -> None:
    book = Book()
    for when, since, counter in looks:
        book.look(when, since, energy=counter)
    assert book.of().energy_mj == expected


def test_another_source_reads_another_counter() -> None:
    book = Book()
    book.look(0, None, energy=10)
    assert book.look(5, 0, energy=900, source="other").energy_mj is None
    assert book.look(10, 5, energy=930, source="other").energy_mj == 30


def test_what_is_drawn_when_idle_goes_by_held_time_and_the_rest_by_busy_time() -> None:
    book = Book()
    book.hold(0, holder("a", 0.5), holder("b", 0.25))
    book.look(0, None, energy=0)
    # Idle: 100 mW.
    book.look(10, 0, busy=0, energy=1000)
    assert energies(book) == {"a": 500, "b": 250}
    book.look(20, 10, process("b", busy=3 * S), process(busy=S), busy=4 * S, energy=6000)
    assert energies(book) == {"a": 500 + 500, "b": 250 + 250 + 3000}
    assert book.of().energy_unattributed_mj == 250 + 250 + 1000


@pytest.mark.parametrize(
    ("seconds", "busy", "learned"),
    [(10, 0, True), (0.9, 0, True), (0.8, 0, False), (10, 1, False), (10, None, False)],
)
def test_what_reports_the_idle_draw(*, seconds: float, busy: int | None, learned: bool) -> None:
    book = Book()
    book.hold(0, holder("idle"))
    book.look(0, None, energy=0)
    book.look(seconds, 0, busy=busy, energy=round(1000 * seconds))
    before = container(book.of(), "idle").energy_mj
    book.look(
        seconds + 1, seconds, process("work", busy=S), busy=S, energy=round(1000 * seconds) + 5000
    )
    after = container(book.of(), "idle").energy_mj
    assert before is not None
    assert after is not None
    assert after - before == (1000 if learned else 0)


def test_the_idle_draw_is_the_least_and_never_more_than_there_was() -> None:
    book = Book()
    book.hold(0, holder("idle"))
    book.look(0, None, energy=0)
    for when, counter in ((10, 3000), (20, 4000), (30, 7000)):
        book.look(when, when - 10, busy=0, energy=counter)
    book.look(40, 30, process("work", busy=S), busy=S, energy=7000 + 1500)
    assert energies(book) == {"idle": 7000 + 1000, "work": 500}
    book.look(50, 40, process("work", busy=S), busy=S, energy=8500 + 700)
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
def test_slices(profile: str, number: int) -> None:
    assert compute_slices(profile) == number


ONE, THREE = mig(GPU, 1), mig(GPU, 2, profile="3g.40gb")


def mig_book() -> Book:
    book = Book(GPU, ONE, THREE)
    book.hold(0, holder("a"), device=ONE)
    book.hold(0, holder("b", 0.5), device=THREE)
    return book


def look(
    book: Book, when: float, since: float | None, energy: int | None, *busy: int | None
) -> list[int | None]:
    """Look at all of them; return the energies of the instances and the GPU."""
    for device, pod, ns in zip((ONE, THREE), ("a", "b"), busy, strict=False):
        book.look(when, since, process(pod), device=device, busy=ns)
    book.take(when, since, used=None, reserved=None, energy=energy)
    found = book.usage().devices
    return [found[d.uuid].energy_mj if d.uuid in found else None for d in (ONE, THREE, GPU)]


def test_the_energy_of_a_gpu_goes_to_its_instances() -> None:
    book = mig_book()
    assert look(book, 0, None, 0, None, None) == [None, None, None]
    # Nothing is busy: by slices, and three of seven nobody has.
    assert look(book, 10, 0, 700, 0, 0) == [100, 300, 300]
    assert by_pod(book.of(THREE).containers, "energy_mj") == {"b": 150}
    assert book.of(THREE).energy_unattributed_mj == 150
    # 70 mW when idle; the rest by busy time times slices: 6 to 2 times 3.
    assert look(book, 20, 10, 1400 + 1200, 6 * S, 2 * S) == [200 + 600, 600 + 600, 600]
    assert by_pod(book.of(ONE).containers, "energy_mj") == {"a": 800}
    assert by_pod(book.of(THREE).containers, "energy_mj") == {"b": 300 + 600}


def test_where_an_instances_busy_time_is_unknown_all_goes_by_slices() -> None:
    book = mig_book()
    look(book, 0, None, 0, None, None)
    assert look(book, 10, 0, 700, None, 5) == [100, 300, 300]


def test_an_instance_that_was_not_looked_at_has_nothing_of_it() -> None:
    book = mig_book()
    look(book, 0, None, 0, None, None)
    assert look(book, 10, 0, 700, 0) == [100, None, 600]
    # And the idle draw isn't learned from what was seen of one of two.
    assert look(book, 20, 10, 1400, S, 0) == [800, 0, 600]


def test_what_came_before_a_break_of_the_counter_does_not_count_after_it() -> None:
    book = mig_book()
    look(book, 0, None, 0, None, None)
    look(book, 10, 0, None, 9 * S, 0)
    look(book, 20, None, 5000, None, None)
    assert look(book, 30, 20, 6000, 0, S) == [0, 1000, 0]


def test_what_an_instance_had_goes_with_it() -> None:
    book = mig_book()
    look(book, 0, None, 0, None, None)
    book.look(5, 0, process("a"), device=ONE, busy=S)
    book.have(6, GPU, THREE)
    book.have(7, GPU, ONE, THREE)
    assert look(book, 10, 0, 700) == [None, None, 700]


def test_an_instance_whose_gpus_energy_no_one_reads_takes_little_memory() -> None:
    book = mig_book()
    book.take(0, None, device=ONE)
    for number in range(3 * MAX_CONTAINERS):
        pod = f"p-{number}"
        book.hold(10 * number, holder(pod), device=ONE)
        book.take(10 * number + 5, max(10 * number - 5, 0), process(pod), device=ONE, busy=1)
        book.accounts.expire(at(10 * number))
    pending = book.accounts._accounts[ONE.uuid].pending
    assert pending.busy is not None
    assert max(len(pending.held), len(pending.busy)) < 40
    assert pending.time_ns == sum(pending.held.values()) + pending.unheld_ns


def test_who_makes_room_leaves_nothing_to_be_split_later() -> None:
    book = mig_book()
    crowd = [process(f"q-{n:03}", busy=1) for n in range(MAX_CONTAINERS - 1)]
    book.take(0, None, *crowd, device=ONE)
    book.take(5, 0, *crowd, device=ONE, busy=len(crowd))
    book.take(10, 5, *crowd[1:], device=ONE, busy=len(crowd) - 1)
    book.hold(11, holder("a"), holder("late"), device=ONE)
    pending = book.accounts._accounts[ONE.uuid].pending
    assert pending.busy is not None
    assert crowd[0].container not in pending.busy
    assert crowd[1].container in pending.busy
    assert pending.busy_ns == 2 * len(crowd) - 1


def test_a_pod_does_not_gain_what_the_one_before_it_did() -> None:
    book = mig_book()
    book.look(0, None, process("a"), device=ONE)
    book.hold(4, holder("b"), device=ONE)
    # Whose processes came after those of `a`, and at the look are alone.
    book.look(5, 0, process("b"), device=ONE, busy=4 * S)
    assert by_pod(book.of(ONE).containers, "busy_ns") == {"a": None, "b": None}
    assert book.of(ONE).busy_unattributed_ns == 4 * S
    book.look(10, 5, process("b"), device=ONE, busy=S)
    assert by_pod(book.of(ONE).containers, "busy_ns") == {"a": None, "b": S}
    # After a break nobody knows of anyone before.
    book.look(20, 15, process("c"), device=ONE, busy=S)
    assert by_pod(book.of(ONE).containers, "busy_ns") == {"a": None, "b": S, "c": S}


def test_a_gpu_that_carries_instances_has_energy_alone() -> None:
    book = mig_book()
    book.hold(0, holder("whole"))
    look(book, 0, None, 0, 0, 0)
    assert GPU.uuid not in book.usage().devices
    look(book, 10, 0, 700, 0, 0)
    gpu_ = book.of(GPU)
    assert (gpu_.containers, gpu_.elapsed_ns, gpu_.busy_ns, gpu_.memory_used_bytes) == (
        (),
        0,
        None,
        None,
    )
    assert gpu_.energy_unattributed_mj == gpu_.energy_mj == 300


def test_a_gpu_that_gets_instances_and_loses_them_continues() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, process("a", memory=5), used=9, energy=0)
    book.look(10, 0, process("a", memory=5, busy=S), used=9, busy=S, energy=100)
    book.have(11, GPU, ONE)
    book.look(12, 10, used=None, energy=150)
    whole = book.of()
    assert container(whole, "a").ended == at(11)
    assert (whole.elapsed_ns, whole.busy_ns, whole.energy_mj) == (10 * S, S, 150)
    assert whole.memory_used_bytes is None
    book.have(13, GPU)
    book.hold(13, holder("a"))
    book.look(14, None, energy=200)
    book.look(15, 14, energy=210)
    again = book.of()
    assert container(again, "a").held_ns == 11 * S
    assert (again.elapsed_ns, again.energy_mj) == (11 * S, 160)


def test_more_slices_than_a_gpu_has_are_all_there_are() -> None:
    crowd = [mig(GPU, gi, profile="4g.40gb") for gi in range(2)]
    book = Book(GPU, *crowd, gpu(1))
    for when, since, energy in ((0, None, 0), (10, 0, 80)):
        for device in crowd:
            book.look(when, since, device=device, busy=0)
        book.take(when, since, used=None, energy=energy)
    assert [book.of(device).energy_mj for device in (*crowd, GPU)] == [40, 40, 0]
