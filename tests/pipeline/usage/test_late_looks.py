"""Holdings whose container has ended, or begun, when a look is told of that was taken before."""

from dataclasses import replace

import pytest

from pipeline.model import Holding, PartialRef
from tests.pipeline.usage.looking import GPU, MS, Book, S, container, holder, process
from tests.pipeline.usage.test_restored_accounts import again
from tests.support.nodes import at
from tests.support.usage import account


def test_a_process_that_is_seen_after_its_container_ended_has_a_holding_of_that_time() -> None:
    """Busy time never exceeds time: a holding of no time has none."""
    book = Book()
    book.hold(1, holder("a"))
    book.look(2, None)
    book.hold(3, holder("b"))
    book.accounts.expire(at(18.1))
    [first] = book.usage().ended
    assert (first.start, first.end) == (at(2), at(3))
    book.look(20, 2, process("a", busy=9 * S, there=False), busy=9 * S)
    found = [one for one in book.usage().ended if one.subject.pod == "a"]
    assert [(one.start, one.end, one.busy_ns) for one in found[1:]] == [(at(3), at(20), 9 * S)]


def test_where_no_process_is_seen_a_look_shows_the_memory_of_who_held_the_device_then() -> None:
    """Though it has ended when the look is told of."""
    book = Book()
    book.hold(1, holder("a"))
    book.look(2, None, used=5, listed=False)
    book.hold(7.1, holder("b"))
    book.look(7, 2, used=9, listed=False)
    book.look(12, 7, used=9, listed=False)
    [one] = book.usage().ended
    assert (one.subject.pod, one.memory_peak_bytes) == ("a", 9)


@pytest.mark.parametrize("again", [False, True])
def test_whoever_held_the_device_at_the_first_look_has_the_time_from_then_on(again: bool) -> None:
    """Holders that change before the look is told of come after it."""
    book = Book()
    if again:
        book.accounts.restore((account(GPU, until=at(0)),), at(1))
    book.hold(1, holder("a"), holder("b"))
    book.hold(2.5, holder("b"), holder("c"))
    book.look(2, None)
    usage = book.look(7, 2)
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


def test_a_look_taken_within_three_intervals_and_reported_of_after_them_comes_too_late() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.look(0, None)
    book.hold(4)
    # Time goes on to the moment at which a look is told of before the look is taken in.
    assert book.accounts.expire(at(19.01))
    found = book.look(18.9, 0)
    [one] = book.usage().ended
    assert (one.end, one.counted_ns, one.gap_ns) == (at(4), 0, 4 * S)
    assert container(found, "a").held_ns == 0
    assert (found.unheld_ns, found.unknown_ns) == (18_900 * MS, 4 * S)


@pytest.mark.parametrize("uid", ["uid-a", ""])
@pytest.mark.parametrize("ends", [None, 8])
@pytest.mark.parametrize("released", [6, None])
def test_who_was_gone_at_a_look_and_is_back_when_it_is_reported_of_has_two_holdings(
    released: float | None, ends: float | None, uid: str
) -> None:
    """The first ends as if the look had been told of at once: with the claim, or with the look."""
    book, name = Book(), ("ml", "a", "main", uid)
    mine = replace(holder("a"), subject=PartialRef(*name))
    if released is not None:
        book.hold(1, mine)
    book.look(2, None, process(name))
    if released is not None:
        book.hold(released)
    book.hold(7.5, mine)
    if ends is not None:
        book.hold(ends)
    book.look(7, 2, process(name, busy=S, there=False), busy=S)
    [first] = book.usage().ended
    assert (first.start, first.end) == (at(2), at(released or 7))
    assert (first.counted_ns, first.busy_ns) == (((released or 7) - 2) * S, S)
    assert first.held_ns == (4 * S if released else 0)
    assert first.source == "runtime"
    book.look(12, 7)
    [_, second] = holdings(book)
    assert (second.start, second.end) == (at(7.5), None if ends is None else at(ends))
    assert second.counted_ns == second.held_ns == round(((ends or 12) - 7.5) * S)


def test_who_is_seen_at_a_look_and_holds_the_device_when_it_is_reported_of_was_there_before() -> (
    None
):
    book = Book()
    book.look(2, None)
    book.hold(7.5, holder("a"))
    book.look(7, 2, process("a", busy=S), busy=S)
    book.look(12, 7)
    [one] = holdings(book)
    assert (one.start, one.counted_ns, one.held_ns, one.busy_ns) == (at(2), 10 * S, 4500 * MS, S)


def test_what_came_and_went_before_a_look_is_apart_from_what_is_held_when_it_is_reported_of() -> (
    None
):
    book = Book()
    book.look(2, None)
    book.hold(7.5, holder("a"))
    book.look(7, 2, process("a", busy=S, there=False), busy=S)
    book.look(12, 7)
    [first, second] = holdings(book)
    assert (first.start, first.end, first.held_ns, first.busy_ns) == (at(2), at(7), 0, S)
    assert (second.start, second.end, second.held_ns, second.busy_ns) == (
        at(7.5),
        None,
        4500 * MS,
        None,
    )


def test_who_was_awaited_at_a_look_and_is_back_when_it_is_reported_of_continues() -> None:
    """One that is seen within a minute has the time since the first look."""
    book = again()
    book.look(42, None)
    book.hold(47.5, holder("a"))
    book.look(47, 42)
    book.look(52, 47)
    [one] = holdings(book)
    assert (one.start, one.end, one.counted_ns, one.gap_ns) == (at(4), None, 16 * S, 32 * S)


def holdings(book: Book) -> list[Holding]:
    """Those that are told of and those that go on, the earliest first."""
    usage = book.usage()
    continuing = [one.holding for one in usage.devices[GPU.uuid].containers if one.holding]
    return sorted([*usage.ended, *continuing], key=lambda one: one.start)
