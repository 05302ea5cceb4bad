"""When a holding begins and ends, what is in it, and when it is told of."""

import pytest

from pipeline.model import Evidence, Holding, PartialRef
from pipeline.usage.container_accounts import MAX_CONTAINERS
from pipeline.usage.ended_holdings import MAX_ENDED, RETENTION_NS, EndedHoldings
from tests.pipeline.usage.looking import GPU, MS, Book, S, container, holder, process
from tests.support.nodes import at, gpu, mig

GOOD_FOR = 15
"""Seconds for which the looks here are good."""


def ended(book: Book) -> tuple[Holding, ...]:
    return book.usage().ended


def sole(book: Book) -> Holding:
    [one] = ended(book)
    return one


def continuing(book: Book, pod: str = "a") -> Holding:
    found = container(book.of(), pod).holding
    assert found is not None
    return found


def spent(one: Holding) -> tuple[int, int]:
    return one.counted_ns, one.gap_ns


# -- begin and end


def test_a_holding_begins_with_a_hold_and_ends_with_it() -> None:
    book = Book()
    book.look(0, None)
    book.hold(2, holder("a"))
    book.look(5, 0)
    one = continuing(book)
    assert (one.start, one.end, one.held_ns, spent(one)) == (at(2), None, 3 * S, (3 * S, 0))
    assert (one.source, one.evidence) == ("runtime", Evidence.RUNTIME_CDI)
    book.hold(8)
    assert container(book.of(), "a").holding is None
    assert ended(book) == ()
    book.look(10, 5)
    one = sole(book)
    assert (one.start, one.end, one.held_ns, spent(one)) == (at(2), at(8), 6 * S, (6 * S, 0))
    assert one.serial == 1


@pytest.mark.parametrize("share", [None, 0.5, 0.25])
def test_a_container_of_300_ms_has_its_holding(share: float | None) -> None:
    book = Book()
    book.look(0, None)
    book.hold(2, holder("a", share))
    book.hold(2.3)
    book.look(5, 0, process("a", busy=90 * MS, there=False), busy=90 * MS)
    one = sole(book)
    assert one.end is not None
    assert one.end.mono_ns - one.start.mono_ns == 300 * MS
    assert (one.held_ns, spent(one)) == (300 * MS * (share or 1), (300 * MS, 0))
    assert (one.busy_ns, one.busy_time_ns, one.busy_peak_ppm) == (90 * MS, 300 * MS, 300_000)


def test_looks_at_both_ends_of_it_make_no_difference() -> None:
    book = Book()
    book.look(0, None)
    book.hold(2, holder("a"))
    book.look(2.05, 0, process("a", memory=7), used=7)
    book.hold(2.3)
    book.look(2.35, 2.05)
    one = sole(book)
    assert (one.start, one.end) == (at(2), at(2.3))
    assert (one.held_ns, spent(one)) == (300 * MS, (300 * MS, 0))
    assert (one.memory_peak_bytes, one.memory_ns) == (7, 250 * MS)


def test_a_container_that_uses_and_does_not_hold_has_a_holding_without_a_word() -> None:
    book = Book()
    book.look(0, None)
    book.look(5, 0, process("a", busy=S), busy=S)
    one = continuing(book)
    assert (one.start, one.source, one.evidence) == (at(0), "", None)
    book.hold(6, holder("a"))
    book.look(10, 5, process("a", busy=S), busy=S)
    assert continuing(book).source == "runtime"
    book.hold(11)
    book.look(15, 10, process("a", busy=S), busy=S)
    assert continuing(book).end is None
    book.look(20, 15)
    assert (sole(book).end, sole(book).busy_ns) == (at(20), 3 * S)


def test_one_that_came_and_went_between_two_looks_and_was_never_claimed() -> None:
    book = Book()
    book.look(0, None)
    book.look(5, 0, process("a", busy=S, there=False), busy=S)
    one = sole(book)
    assert (one.start, one.end, one.busy_ns, spent(one)) == (at(0), at(5), S, (5 * S, 0))
    book.look(10, 5, process("a", busy=MS, there=False), busy=MS)
    later = ended(book)[1]
    assert (later.start, later.end, later.busy_ns) == (at(5), at(10), MS)


def test_one_that_is_there_by_a_former_claim_alone_has_one() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.hold(2)
    book.look(1, None, process(known=False), process("a", there=False))
    assert continuing(book).start == at(1)


def test_one_that_comes_back_begins_another() -> None:
    book = Book()
    book.look(0, None, energy=0)
    book.hold(1, holder("a"))
    book.hold(2)
    book.hold(3, holder("a"))
    book.hold(4.5)
    busy = process("a", busy=S, there=False)
    book.look(5, 0, busy, busy=S, energy=1000)
    first, second = ended(book)
    assert (first.start, first.end, first.held_ns) == (at(1), at(2), S)
    assert (second.start, second.end, second.held_ns) == (at(3), at(4.5), 3 * S // 2)
    # Whose the work was nobody can tell: it goes by time.
    assert (first.busy_ns, second.busy_ns) == (2 * S // 5, 3 * S // 5)
    whole = container(book.of(), "a")
    assert (whole.start, whole.held_ns) == (at(1), 5 * S // 2)
    assert (first.energy_mj or 0) + (second.energy_mj or 0) == whole.energy_mj
    book.hold(6, holder("a"))
    assert (continuing(book).start, continuing(book).held_ns) == (at(6), 0)


def test_one_that_is_back_at_once_is_the_same() -> None:
    book = Book()
    book.look(0, None)
    book.hold(1, holder("a"))
    book.hold(2)
    book.hold(2, holder("a"))
    book.look(5, 0)
    assert ended(book) == ()
    assert (continuing(book).start, continuing(book).held_ns) == (at(1), 4 * S)


@pytest.mark.parametrize("there", [True, False])
def test_one_whose_processes_the_next_look_shows_continues(there: bool) -> None:
    """They may have begun at the look before, when the container still held the device."""
    book = Book()
    book.look(0, None)
    book.hold(1, holder("a"))
    book.look(5, 0)
    book.hold(6)
    book.look(10, 5, process("a", busy=S, there=there), busy=S)
    if there:
        assert ended(book) == ()
        book.look(15, 10)
    one = sole(book)
    assert (one.start, one.end) == (at(1), at(15 if there else 6))
    assert (one.held_ns, one.busy_ns) == (5 * S, S)


def test_what_a_look_shows_that_was_taken_before_the_end_is_still_the_holdings() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, energy=0)
    book.hold(10.5)
    book.look(10, 0, process("a", busy=S, there=False), busy=S, energy=50)
    assert ended(book) == ()
    book.look(15, 10, busy=0, energy=60)
    one = sole(book)
    assert (one.end, one.held_ns, one.busy_ns) == (at(10.5), 21 * S // 2, S)
    assert (one.energy_mj, spent(one)) == (51, (21 * S // 2, 0))


# -- gaps


@pytest.mark.parametrize(
    ("since", "counted", "gap"), [(5, 8, 0), (None, 3, 5), (8, 5, 3), (10, 3, 5), (0, 8, 0)]
)
def test_breaks_are_gaps(since: float | None, counted: int, gap: int) -> None:
    book = Book()
    book.look(0, None)
    book.hold(2, holder("a"))
    book.look(5, 0)
    book.look(10, since)
    one = continuing(book)
    assert spent(one) == (counted * S, gap * S)
    assert one.held_ns == counted * S


def test_of_a_break_the_part_that_overlaps_counts() -> None:
    book = Book()
    book.look(0, None)
    book.hold(2, holder("a"))
    book.hold(4)
    book.look(10, 3)
    one = sole(book)
    assert (one.held_ns, spent(one)) == (S, (S, S))


# -- memory and busy time


def test_memory_stands_from_look_to_look_unless_there_was_a_break() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, process("a", memory=100), used=500)
    book.look(10, 0, process("a", memory=400), used=500)
    book.look(14, 10, process("a", memory=None), used=500)
    book.look(20, 14, process("a", memory=200), used=500)
    book.look(30, None, process("a", memory=50), used=500)
    book.hold(31)
    book.look(35, 30)
    one = sole(book)
    assert one.memory_peak_bytes == 400
    assert (one.memory_byte_ns, one.memory_ns) == ((1000 + 1600 + 50) * S, 15 * S)
    assert one.memory_mean_bytes == 2650 // 15


def test_memory_that_is_no_longer_good_does_not_stand() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None, process("a", memory=100), used=500)
    book.accounts.expire(at(15.1))
    book.look(20, 0, process("a", memory=100), used=500)
    assert (continuing(book).memory_ns, continuing(book).memory_peak_bytes) == (0, 100)


def test_the_peak_is_that_of_intervals_long_enough_to_report() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    for when, since, busy in ((5, 0, S), (5.2, 5, 200 * MS), (10.2, 5.2, 2 * S)):
        book.look(when, since, process("a", busy=busy), busy=busy)
    assert continuing(book).busy_peak_ppm == 400_000
    assert continuing(book).busy_mean_ppm == 3_200_000 * 10 // 102


def test_no_more_than_the_whole_of_its_time_is_busy_on_the_mean() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    book.look(5, 0, process("a", busy=9 * S), busy=9 * S)
    one = continuing(book)
    assert (one.busy_ns, one.busy_mean_ppm, one.busy_peak_ppm) == (5 * S, 1_000_000, 1_000_000)


def test_what_no_one_reports_is_unknown() -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.look(0, None, process(known=False))
    book.look(5, 0, process(known=False, busy=S), busy=S, used=None)
    one = continuing(book)
    assert (one.busy_ns, one.busy_peak_ppm, one.busy_time_ns) == (None, None, 0)
    assert (one.energy_mj, one.memory_peak_bytes, one.memory_mean_bytes) == (None, None, None)


# -- when it is told of


def test_without_a_look_it_is_reported_of_after_three_intervals_and_the_rest_is_a_gap() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    book.look(5, 0)
    book.hold(8)
    book.accounts.expire(at(8 + GOOD_FOR))
    assert ended(book) == ()
    assert book.accounts.expire(at(8.01 + GOOD_FOR))
    one = sole(book)
    assert (one.end, spent(one)) == (at(8), (5 * S, 3 * S))
    # It is final: what a look still brings for that time is nobody's.
    found = book.look(30, 5)
    assert sole(book) is one
    assert container(found, "a").held_ns == 5 * S
    assert found.unheld_ns == 25 * S


def test_all_end_when_the_device_is_gone() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.hold(0, holder("a"))
    book.look(0, None, process("b"))
    book.look(5, 0, process("b"))
    book.have(7, other)
    assert [(one.subject.pod, one.end, spent(one)) for one in ended(book)] == [
        ("a", at(7), (5 * S, 2 * S)),
        ("b", at(7), (5 * S, 2 * S)),
    ]
    book.have(8, GPU, other)
    book.hold(9, holder("a"))
    assert continuing(book).start == at(9)


def test_all_end_with_the_last_look_when_the_accounts_are_forgotten() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    book.look(5, 0)
    book.accounts.clear(at(400).mono_ns)
    assert (sole(book).end, spent(sole(book))) == (at(5), (5 * S, 0))


def test_who_makes_room_is_reported_of_first() -> None:
    book = Book()
    crowd = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS - 1)]
    book.hold(0, holder("a"))
    book.look(0, None, *crowd)
    book.hold(3)
    book.hold(4, holder("b"))
    assert (sole(book).subject.pod, spent(sole(book))) == ("a", (0, 3 * S))


def test_who_made_room_is_kept_from_then_on_and_not_from_when_its_interval_began() -> None:
    book = Book()
    crowd = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS - 1)]
    book.hold(0, holder("a"))
    book.look(0, None, *crowd)
    book.hold(3)
    book.look(250, 0, *crowd, process("z"))
    assert sole(book).subject.pod == "a"
    book.accounts.expire(at(300.1))
    assert sole(book).subject.pod == "a"
    book.accounts.expire(at(550.1))
    assert ended(book) == ()


def test_on_mig_it_waits_for_the_energy_of_its_gpu() -> None:
    one = mig(GPU, 1)
    book = Book(GPU, one)
    book.hold(0, holder("a"), device=one)
    book.take(0, None, device=one)
    book.take(0, None, energy=0)
    book.hold(4, device=one)
    book.take(5, 0, device=one)
    assert ended(book) == ()
    book.take(5, 0, energy=700)
    assert (sole(book).end, sole(book).held_ns) == (at(4), 4 * S)
    assert sole(book).energy_mj == 80


def test_a_gpu_whose_energy_no_one_reads_keeps_no_one_waiting_for_ever() -> None:
    one = mig(GPU, 1)
    book = Book(GPU, one)
    book.hold(0, holder("a"), device=one)
    book.take(0, None, device=one)
    book.take(0, None, energy=0)
    book.hold(4, device=one)
    book.take(5, 0, device=one)
    book.accounts.expire(at(4.1 + GOOD_FOR))
    given_out = sole(book)
    book.take(25, 0, energy=700)
    assert sole(book) is given_out
    assert book.of(one).energy_unattributed_mj == book.of(one).energy_mj


# -- for how long


def test_serials_grow_over_all_devices_and_who_remembers_one_misses_none() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    for device in (GPU, other):
        book.hold(0, holder("a"), device=device)
        book.look(0, None, device=device)
    book.hold(1, device=other)
    book.look(5, 0, device=other)
    book.hold(6)
    book.look(7, 0)
    usage = book.usage()
    assert [(one.device, one.serial) for one in usage.ended] == [(other.uuid, 1), (GPU.uuid, 2)]
    assert usage.ended_after(1) == usage.ended[1:]
    assert usage.ended_after(2) == ()


def test_they_are_kept_for_a_while_and_not_too_many() -> None:
    given_out = EndedHoldings()
    one = Holding("GPU", PartialRef("ml", "a", "main"), None, "", None, at(0), at(1))
    for number in range(MAX_ENDED + 3):
        given_out.add(one, number)
    assert given_out.evicted == 3
    assert [each.serial for each in given_out.holdings()][:2] == [4, 5]
    assert given_out.holdings() is given_out.holdings()
    assert not given_out.expire(3 + RETENTION_NS)
    assert given_out.expire(4 + RETENTION_NS)
    assert len(given_out.holdings()) == MAX_ENDED - 1
