"""Holdings whose container has ended, or begun, when a look is told of that was taken before."""

import pytest

from tests.pipeline.usage.looking import GPU, MS, Book, S, container, holder, process
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


def test_a_look_taken_within_three_intervals_and_told_of_after_them_comes_too_late() -> None:
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
