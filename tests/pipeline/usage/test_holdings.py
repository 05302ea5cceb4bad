"""When a holding starts and ends, what it contains, and when it is reported."""

import pytest

from pipeline.model import Evidence, Holding, PartialRef
from pipeline.usage.container_accounts import MAX_CONTAINERS
from pipeline.usage.ended_holdings import MAX_ENDED, RETENTION_NS, EndedHoldings
from tests.pipeline.usage.samples import GPU, MS, Book, S, container, holder, process
from tests.support.nodes import at, gpu, mig

GOOD_FOR = 15
"""Seconds for which the samples here are valid."""


def ended(book: Book) -> tuple[Holding, ...]:
    return book.usage().ended


def only_ended(book: Book) -> Holding:
    [one] = ended(book)
    return one


def continuing(book: Book, pod: str = "a") -> Holding:
    found = container(book.account(), pod).holding
    assert found is not None
    return found


def times(one: Holding) -> tuple[int, int]:
    return one.counted_ns, one.gap_ns


# -- start and end


def test_a_holding_starts_and_ends_with_the_claim() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(2, holder("a"))
    book.sample(5, 0)
    one = continuing(book)
    assert (one.start, one.end, one.held_ns, times(one)) == (at(2), None, 3 * S, (3 * S, 0))
    assert (one.source, one.evidence) == ("runtime", Evidence.RUNTIME_CDI)
    book.hold(8)
    assert container(book.account(), "a").holding is None
    assert ended(book) == ()
    book.sample(10, 5)
    one = only_ended(book)
    assert (one.start, one.end, one.held_ns, times(one)) == (at(2), at(8), 6 * S, (6 * S, 0))
    assert one.serial == 1


@pytest.mark.parametrize("share", [None, 0.5, 0.25])
def test_a_container_of_300_ms_has_a_holding(share: float | None) -> None:
    book = Book()
    book.sample(0, None)
    book.hold(2, holder("a", share))
    book.hold(2.3)
    book.sample(5, 0, process("a", busy=90 * MS, there=False), busy=90 * MS)
    one = only_ended(book)
    assert one.end is not None
    assert one.end.mono_ns - one.start.mono_ns == 300 * MS
    assert (one.held_ns, times(one)) == (300 * MS * (share or 1), (300 * MS, 0))
    assert (one.busy_ns, one.busy_time_ns, one.busy_peak_ppm) == (90 * MS, 300 * MS, 300_000)


def test_samples_shortly_after_start_and_end_make_no_difference() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(2, holder("a"))
    book.sample(2.05, 0, process("a", memory=7), used=7)
    book.hold(2.3)
    book.sample(2.35, 2.05)
    one = only_ended(book)
    assert (one.start, one.end) == (at(2), at(2.3))
    assert (one.held_ns, times(one)) == (300 * MS, (300 * MS, 0))
    assert (one.memory_peak_bytes, one.memory_ns) == (7, 250 * MS)


def test_a_container_that_only_uses_a_device_has_a_holding_without_source() -> None:
    book = Book()
    book.sample(0, None)
    book.sample(5, 0, process("a", busy=S), busy=S)
    one = continuing(book)
    assert (one.start, one.source, one.evidence) == (at(0), "", None)
    book.hold(6, holder("a"))
    book.sample(10, 5, process("a", busy=S), busy=S)
    assert continuing(book).source == "runtime"
    book.hold(11)
    book.sample(15, 10, process("a", busy=S), busy=S)
    assert continuing(book).end is None
    book.sample(20, 15)
    assert (only_ended(book).end, only_ended(book).busy_ns) == (at(20), 3 * S)


def test_processes_of_an_unclaimed_container_between_two_samples_have_a_holding() -> None:
    book = Book()
    book.sample(0, None)
    book.sample(5, 0, process("a", busy=S, there=False), busy=S)
    one = only_ended(book)
    assert (one.start, one.end, one.busy_ns, times(one)) == (at(0), at(5), S, (5 * S, 0))
    book.sample(10, 5, process("a", busy=MS, there=False), busy=MS)
    later = ended(book)[1]
    assert (later.start, later.end, later.busy_ns) == (at(5), at(10), MS)


def test_a_container_seen_only_as_ended_while_an_owner_is_unknown_has_a_holding() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.hold(2)
    book.sample(1, None, process(known=False), process("a", there=False))
    assert continuing(book).start == at(1)


def test_a_container_that_returns_starts_another_holding() -> None:
    book = Book()
    book.sample(0, None, energy=0)
    book.hold(1, holder("a"))
    book.hold(2)
    book.hold(3, holder("a"))
    book.hold(4.5)
    busy = process("a", busy=S, there=False)
    book.sample(5, 0, busy, busy=S, energy=1000)
    first, second = ended(book)
    assert (first.start, first.end, first.held_ns) == (at(1), at(2), S)
    assert (second.start, second.end, second.held_ns) == (at(3), at(4.5), 3 * S // 2)
    # It is unknown which holding the work belongs to: it is split by time.
    assert (first.busy_ns, second.busy_ns) == (2 * S // 5, 3 * S // 5)
    account = container(book.account(), "a")
    assert (account.start, account.held_ns) == (at(1), 5 * S // 2)
    assert (first.energy_mj or 0) + (second.energy_mj or 0) == account.energy_mj
    book.hold(6, holder("a"))
    assert (continuing(book).start, continuing(book).held_ns) == (at(6), 0)


def test_a_container_that_returns_at_the_same_moment_continues_its_holding() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(1, holder("a"))
    book.hold(2)
    book.hold(2, holder("a"))
    book.sample(5, 0)
    assert ended(book) == ()
    assert (continuing(book).start, continuing(book).held_ns) == (at(1), 4 * S)


@pytest.mark.parametrize("there", [True, False])
def test_a_holding_continues_if_the_next_sample_shows_its_processes(there: bool) -> None:
    """They may have started at the previous sample, when the container still held the device."""
    book = Book()
    book.sample(0, None)
    book.hold(1, holder("a"))
    book.sample(5, 0)
    book.hold(6)
    book.sample(10, 5, process("a", busy=S, there=there), busy=S)
    if there:
        assert ended(book) == ()
        book.sample(15, 10)
    one = only_ended(book)
    assert (one.start, one.end) == (at(1), at(15 if there else 6))
    assert (one.held_ns, one.busy_ns) == (5 * S, S)


def test_usage_in_a_sample_from_before_the_end_belongs_to_the_holding() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, energy=0)
    book.hold(10.5)
    book.sample(10, 0, process("a", busy=S, there=False), busy=S, energy=50)
    assert ended(book) == ()
    book.sample(15, 10, busy=0, energy=60)
    one = only_ended(book)
    assert (one.end, one.held_ns, one.busy_ns) == (at(10.5), 21 * S // 2, S)
    assert (one.energy_mj, times(one)) == (51, (21 * S // 2, 0))


# -- gaps


@pytest.mark.parametrize(
    ("since", "counted", "gap"), [(5, 8, 0), (None, 3, 5), (8, 5, 3), (10, 3, 5), (0, 8, 0)]
)
def test_breaks_between_samples_are_gaps(since: float | None, counted: int, gap: int) -> None:
    book = Book()
    book.sample(0, None)
    book.hold(2, holder("a"))
    book.sample(5, 0)
    book.sample(10, since)
    one = continuing(book)
    assert times(one) == (counted * S, gap * S)
    assert one.held_ns == counted * S


def test_only_the_part_of_a_break_within_the_holding_is_its_gap() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(2, holder("a"))
    book.hold(4)
    book.sample(10, 3)
    one = only_ended(book)
    assert (one.held_ns, times(one)) == (S, (S, S))


# -- memory and busy time


def test_memory_is_valid_from_sample_to_sample_except_across_a_break() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, process("a", memory=100), used=500)
    book.sample(10, 0, process("a", memory=400), used=500)
    book.sample(14, 10, process("a", memory=None), used=500)
    book.sample(20, 14, process("a", memory=200), used=500)
    book.sample(30, None, process("a", memory=50), used=500)
    book.hold(31)
    book.sample(35, 30)
    one = only_ended(book)
    assert one.memory_peak_bytes == 400
    assert (one.memory_byte_ns, one.memory_ns) == ((1000 + 1600 + 50) * S, 15 * S)
    assert one.memory_mean_bytes == 2650 // 15


def test_expired_memory_does_not_count() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, process("a", memory=100), used=500)
    book.accounts.expire(at(15.1))
    book.sample(20, 0, process("a", memory=100), used=500)
    assert (continuing(book).memory_ns, continuing(book).memory_peak_bytes) == (0, 100)


def test_the_busy_peak_ignores_intervals_that_are_too_short() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    for when, since, busy in ((5, 0, S), (5.2, 5, 200 * MS), (10.2, 5.2, 2 * S)):
        book.sample(when, since, process("a", busy=busy), busy=busy)
    assert continuing(book).busy_peak_ppm == 400_000
    assert continuing(book).busy_mean_ppm == 3_200_000 * 10 // 102


def test_the_busy_mean_is_at_most_1() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    book.sample(5, 0, process("a", busy=9 * S), busy=9 * S)
    one = continuing(book)
    assert (one.busy_ns, one.busy_mean_ppm, one.busy_peak_ppm) == (5 * S, 1_000_000, 1_000_000)


def test_quantities_that_no_sample_reports_are_unknown() -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.sample(0, None, process(known=False))
    book.sample(5, 0, process(known=False, busy=S), busy=S, used=None)
    one = continuing(book)
    assert (one.busy_ns, one.busy_peak_ppm, one.busy_time_ns) == (None, None, 0)
    assert (one.energy_mj, one.memory_peak_bytes, one.memory_mean_bytes) == (None, None, None)


# -- when it is reported


def test_without_a_sample_a_holding_is_reported_after_three_intervals_with_a_gap() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    book.sample(5, 0)
    book.hold(8)
    book.accounts.expire(at(8 + GOOD_FOR))
    assert ended(book) == ()
    assert book.accounts.expire(at(8.01 + GOOD_FOR))
    one = only_ended(book)
    assert (one.end, times(one)) == (at(8), (5 * S, 3 * S))
    # It is final: what a later sample adds for that time is unattributed.
    found = book.sample(30, 5)
    assert only_ended(book) is one
    assert container(found, "a").held_ns == 5 * S
    assert found.unheld_ns == 25 * S


def test_all_holdings_end_when_the_device_is_removed() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    book.hold(0, holder("a"))
    book.sample(0, None, process("b"))
    book.sample(5, 0, process("b"))
    book.set_devices(7, other)
    assert [(one.subject.pod, one.end, times(one)) for one in ended(book)] == [
        ("a", at(7), (5 * S, 2 * S)),
        ("b", at(7), (5 * S, 2 * S)),
    ]
    book.set_devices(8, GPU, other)
    book.hold(9, holder("a"))
    assert continuing(book).start == at(9)


def test_all_holdings_end_with_the_last_sample_when_the_accounts_are_forgotten() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    book.sample(5, 0)
    book.accounts.clear(at(400).mono_ns)
    assert (only_ended(book).end, times(only_ended(book))) == (at(5), (5 * S, 0))


def test_a_container_that_makes_room_has_its_holding_reported() -> None:
    book = Book()
    processes = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS - 1)]
    book.hold(0, holder("a"))
    book.sample(0, None, *processes)
    book.hold(3)
    book.hold(4, holder("b"))
    assert (only_ended(book).subject.pod, times(only_ended(book))) == ("a", (0, 3 * S))


def test_the_holding_of_a_container_that_made_room_is_kept_from_then_on() -> None:
    book = Book()
    processes = [process(f"pod-{n:03}") for n in range(MAX_CONTAINERS - 1)]
    book.hold(0, holder("a"))
    book.sample(0, None, *processes)
    book.hold(3)
    book.sample(250, 0, *processes, process("z"))
    assert only_ended(book).subject.pod == "a"
    book.accounts.expire(at(300.1))
    assert only_ended(book).subject.pod == "a"
    book.accounts.expire(at(550.1))
    assert ended(book) == ()


def test_a_holding_on_mig_waits_for_the_energy_of_its_gpu() -> None:
    one = mig(GPU, 1)
    book = Book(GPU, one)
    book.hold(0, holder("a"), device=one)
    book.add(0, None, device=one)
    book.add(0, None, energy=0)
    book.hold(4, device=one)
    book.add(5, 0, device=one)
    assert ended(book) == ()
    book.add(5, 0, energy=700)
    assert (only_ended(book).end, only_ended(book).held_ns) == (at(4), 4 * S)
    assert only_ended(book).energy_mj == 80


def test_a_holding_on_mig_does_not_wait_permanently_for_energy() -> None:
    one = mig(GPU, 1)
    book = Book(GPU, one)
    book.hold(0, holder("a"), device=one)
    book.add(0, None, device=one)
    book.add(0, None, energy=0)
    book.hold(4, device=one)
    book.add(5, 0, device=one)
    book.accounts.expire(at(4.1 + GOOD_FOR))
    kept = only_ended(book)
    book.add(25, 0, energy=700)
    assert only_ended(book) is kept
    assert book.account(one).energy_unattributed_mj == book.account(one).energy_mj


# -- how long ended holdings are kept


def test_serials_increase_over_all_devices_so_that_no_reader_misses_one() -> None:
    other = gpu(1)
    book = Book(GPU, other)
    for device in (GPU, other):
        book.hold(0, holder("a"), device=device)
        book.sample(0, None, device=device)
    book.hold(1, device=other)
    book.sample(5, 0, device=other)
    book.hold(6)
    book.sample(7, 0)
    usage = book.usage()
    assert [(one.device, one.serial) for one in usage.ended] == [(other.uuid, 1), (GPU.uuid, 2)]
    assert usage.ended_after(1) == usage.ended[1:]
    assert usage.ended_after(2) == ()


def test_ended_holdings_are_kept_for_a_while_and_limited_in_number() -> None:
    kept = EndedHoldings()
    one = Holding("GPU", PartialRef("ml", "a", "main"), None, "", None, at(0), at(1))
    for number in range(MAX_ENDED + 3):
        kept.add(one, number)
    assert kept.evicted == 3
    assert [each.serial for each in kept.holdings()][:2] == [4, 5]
    assert kept.holdings() is kept.holdings()
    assert not kept.expire(3 + RETENTION_NS)
    assert kept.expire(4 + RETENTION_NS)
    assert len(kept.holdings()) == MAX_ENDED - 1
