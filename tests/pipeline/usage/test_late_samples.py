"""Holdings that started or ended after a sample was taken, and before it was added."""

from dataclasses import replace

import pytest

from pipeline.model import Holding, PartialRef
from tests.pipeline.usage.samples import GPU, MS, Book, S, container, holder, process
from tests.pipeline.usage.test_restored_accounts import restored
from tests.support.nodes import at
from tests.support.usage import account


def test_a_process_seen_after_its_holding_is_final_has_another_holding() -> None:
    """Busy time never exceeds elapsed time, so a holding of length 0 can't contain it."""
    book = Book()
    book.hold(1, holder("a"))
    book.sample(2, None)
    book.hold(3, holder("b"))
    book.accounts.expire(at(18.1))
    [first] = book.usage().ended
    assert (first.start, first.end) == (at(2), at(3))
    book.sample(20, 2, process("a", busy=9 * S, there=False), busy=9 * S)
    found = [one for one in book.usage().ended if one.subject.pod == "a"]
    assert [(one.start, one.end, one.busy_ns) for one in found[1:]] == [(at(3), at(20), 9 * S)]


def test_without_a_process_list_memory_is_the_holders_at_the_time_of_the_sample() -> None:
    """It has ended when the sample is added."""
    book = Book()
    book.hold(1, holder("a"))
    book.sample(2, None, used=5, listed=False)
    book.hold(7.1, holder("b"))
    book.sample(7, 2, used=9, listed=False)
    book.sample(12, 7, used=9, listed=False)
    [one] = book.usage().ended
    assert (one.subject.pod, one.memory_peak_bytes) == ("a", 9)


@pytest.mark.parametrize("restored", [False, True])
def test_holders_at_the_time_of_the_first_sample_get_the_time_from_then_on(restored: bool) -> None:
    """Changes of holders before the sample is added count as later than the sample."""
    book = Book()
    if restored:
        book.accounts.restore((account(GPU, until=at(0)),), at(1))
    book.hold(1, holder("a"), holder("b"))
    book.hold(2.5, holder("b"), holder("c"))
    book.sample(2, None)
    usage = book.sample(7, 2)
    starts = {one.subject.pod: one.holding.start for one in usage.containers if one.holding}
    assert starts == {"b": at(2), "c": at(2.5)}
    assert book.held() == {"a": S // 4, "b": 5 * S // 2, "c": 9 * S // 4}
    [over] = book.usage().ended
    assert (over.subject.pod, over.start, over.end, over.counted_ns) == (
        "a",
        at(2),
        at(2.5),
        S // 2,
    )


def test_a_sample_added_three_intervals_after_the_end_does_not_change_a_holding() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None)
    book.hold(4)
    # Accounts expire at the time of adding before the sample is added.
    assert book.accounts.expire(at(19.01))
    found = book.sample(18.9, 0)
    [one] = book.usage().ended
    assert (one.end, one.counted_ns, one.gap_ns) == (at(4), 0, 4 * S)
    assert container(found, "a").held_ns == 0
    assert (found.unheld_ns, found.unknown_ns) == (18_900 * MS, 4 * S)


@pytest.mark.parametrize("uid", ["uid-a", ""])
@pytest.mark.parametrize("ends", [None, 8])
@pytest.mark.parametrize("released", [6, None])
def test_a_container_gone_at_a_sample_and_back_when_it_is_added_has_two_holdings(
    released: float | None, ends: float | None, uid: str
) -> None:
    """The first ends as if the sample had been added immediately: with the claim or the sample."""
    book, name = Book(), ("ml", "a", "main", uid)
    mine = replace(holder("a"), subject=PartialRef(*name))
    if released is not None:
        book.hold(1, mine)
    book.sample(2, None, process(name))
    if released is not None:
        book.hold(released)
    book.hold(7.5, mine)
    if ends is not None:
        book.hold(ends)
    book.sample(7, 2, process(name, busy=S, there=False), busy=S)
    [first] = book.usage().ended
    assert (first.start, first.end) == (at(2), at(released or 7))
    assert (first.counted_ns, first.busy_ns) == (((released or 7) - 2) * S, S)
    assert first.held_ns == (4 * S if released else 0)
    assert first.source == "runtime"
    book.sample(12, 7)
    [_, second] = holdings(book)
    assert (second.start, second.end) == (at(7.5), None if ends is None else at(ends))
    assert second.counted_ns == second.held_ns == round(((ends or 12) - 7.5) * S)


def test_a_container_that_uses_a_device_before_it_holds_it_has_one_holding() -> None:
    book = Book()
    book.sample(2, None)
    book.hold(7.5, holder("a"))
    book.sample(7, 2, process("a", busy=S), busy=S)
    book.sample(12, 7)
    [one] = holdings(book)
    assert (one.start, one.counted_ns, one.held_ns, one.busy_ns) == (at(2), 10 * S, 4500 * MS, S)


def test_processes_that_ended_before_a_sample_are_not_part_of_a_later_holding() -> None:
    book = Book()
    book.sample(2, None)
    book.hold(7.5, holder("a"))
    book.sample(7, 2, process("a", busy=S, there=False), busy=S)
    book.sample(12, 7)
    [first, second] = holdings(book)
    assert (first.start, first.end, first.held_ns, first.busy_ns) == (at(2), at(7), 0, S)
    assert (second.start, second.end, second.held_ns, second.busy_ns) == (
        at(7.5),
        None,
        4500 * MS,
        None,
    )


def test_a_restored_container_that_returns_after_a_sample_continues_its_holding() -> None:
    """A container that is seen within a minute gets the time since the first sample."""
    book = restored()
    book.sample(42, None)
    book.hold(47.5, holder("a"))
    book.sample(47, 42)
    book.sample(52, 47)
    [one] = holdings(book)
    assert (one.start, one.end, one.counted_ns, one.gap_ns) == (at(4), None, 16 * S, 32 * S)


def holdings(book: Book) -> list[Holding]:
    """Return ended and continuing holdings, sorted by start."""
    usage = book.usage()
    continuing = [one.holding for one in usage.devices[GPU.uuid].containers if one.holding]
    return sorted([*usage.ended, *continuing], key=lambda one: one.start)
