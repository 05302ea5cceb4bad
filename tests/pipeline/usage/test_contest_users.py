"""Who is a user of a shared device, and which of its holdings the contested time belongs to."""

import pytest

from tests.pipeline.usage.samples import GPU, Book, S, by_pod, container, holder, process
from tests.support.nodes import at
from tests.support.usage import account, holding, used


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("ab", "a", id="its process ended"),
        pytest.param("a", "ab", id="its process began"),
        pytest.param("ab", "ab", id="its process was there all the time"),
    ],
)
def test_a_container_whose_process_got_no_window_is_a_user(first: str, second: str) -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.sample(0, None, *map(process, first))
    found = book.sample(
        5, 0, *(process(pod, busy=2 * S if pod == "a" else None) for pod in second), busy=2 * S
    )
    assert (by_pod(found.containers, "contested_ns")["a"] or 0) > 0


def test_a_process_outside_of_containers_is_a_user() -> None:
    book = Book()
    book.hold(0, holder("a"))
    book.sample(0, None, process("a"))
    found = book.sample(5, 0, process("a", busy=2 * S), process(None), busy=2 * S)
    assert (by_pod(found.containers, "contested_ns")["a"] or 0) > 0


def test_a_holder_without_a_process_is_no_user() -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.sample(0, None, process("a"))
    found = book.sample(5, 0, process("a", busy=2 * S), busy=2 * S)
    assert by_pod(found.containers, "contested_ns") == {"a": 0, "b": 0}


def test_two_holdings_of_an_interval_share_its_contested_time() -> None:
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.sample(0, None, process("b"))
    book.hold(1, holder("b"))
    book.hold(3, holder("a"), holder("b"))
    book.sample(5, 0, process("a", busy=2 * S), process("b", busy=2 * S), busy=4 * S)
    one = container(book.account(), "a")
    first = [each for each in book.usage().ended if each.subject.pod == "a"] + [*one.closing]
    assert one.holding is not None
    parts = [each.contested_ns or 0 for each in [*first, one.holding]]
    assert len(parts) == 2
    assert sum(parts) == one.contested_ns == S
    assert parts[0] * 2 == pytest.approx(parts[1], abs=2), "1 s and 2 s of the interval"


def test_a_restored_container_without_busy_time_begins_at_0() -> None:
    stored = holding("a", GPU, uid="uid-a", start=at(0), until=at(10), held=S)
    entry = used("a", uid="uid-a", busy=None, held=S, holding=stored)
    book = Book()
    book.accounts.restore((account(GPU, entry, until=at(10), unheld=0),), at(20))
    book.hold(20, holder("a"), holder("b"))
    book.sample(25, None, process("a"), process("b"))
    book.sample(30, 25, process("a", busy=2 * S), process("b", busy=2 * S), busy=4 * S)
    assert container(book.account(), "a").contested_ns == S
