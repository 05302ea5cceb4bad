"""How busy a container kept a device in the last samples (`recent_busy_ppm`)."""

from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.usage.samples import MS, Book, S, by_pod, holder, process
from tests.support.nodes import at

WHOLE = 1_000_000


def shared() -> Book:
    """Return accounts of a GPU that two pods hold, with a first sample at second 0."""
    book = Book()
    book.hold(0, holder("a"), holder("b"))
    book.sample(0, None, process("a", busy=S), busy=S)
    return book


def loads(book: Book) -> dict[str, int | None]:
    return by_pod(book.account().containers, "recent_busy_ppm")


def test_it_is_unknown_before_an_interval_has_ended() -> None:
    assert loads(shared()) == {"a": None, "b": None}


def test_each_container_has_the_busy_part_of_the_last_interval() -> None:
    book = shared()
    book.sample(5, 0, process("a", busy=S), process("a", busy=S), process("b", busy=S), busy=3 * S)
    assert loads(book) == {"a": 400_000, "b": 200_000}
    book.sample(10, 5, process("b", busy=5 * S), busy=5 * S)
    assert loads(book) == {"a": 0, "b": WHOLE}


def test_a_holder_without_processes_is_idle() -> None:
    book = shared()
    book.sample(5, 0, busy=0)
    assert loads(book) == {"a": 0, "b": 0}


def test_it_is_unknown_if_a_busy_process_has_an_unknown_owner() -> None:
    book = shared()
    book.sample(5, 0, process(known=False, busy=S), process("b", busy=S), busy=2 * S)
    assert loads(book) == {"a": None, "b": 200_000}


def test_it_is_unknown_if_the_busy_time_of_the_device_is_unknown() -> None:
    book = shared()
    book.sample(5, 0, process("a", busy=S), busy=S)
    book.sample(10, 5, process("a", busy=S), busy=None)
    assert loads(book) == {"a": None, "b": None}


def test_it_is_unknown_while_mps_conceals_it() -> None:
    book = shared()
    book.sample(5, 0, process("a", client=True), process("server", busy=S), busy=S, mps=True)
    found = loads(book)
    assert (found["a"], found["b"]) == (None, None)


def test_it_is_unknown_after_a_gap() -> None:
    book = shared()
    book.sample(5, 0, process("a", busy=S), busy=S)
    book.sample(30, None, process("a", busy=S), busy=S)
    assert loads(book) == {"a": None, "b": None}


def test_it_expires_together_with_the_memory() -> None:
    book = shared()
    book.sample(5, 0, process("a", busy=S, memory=7), busy=S, used=7)
    book.accounts.expire(at(20))
    assert loads(book)["a"] == 200_000
    book.accounts.expire(at(20.1))
    assert loads(book) == {"a": None, "b": None}


def test_an_ended_container_has_none() -> None:
    book = shared()
    book.sample(5, 0, process("a", busy=S), busy=S)
    book.hold(6, holder("b"))
    book.sample(10, 5, process("a", busy=S, there=False), busy=S)
    assert loads(book) == {"a": None, "b": 0}


def test_short_intervals_count_together() -> None:
    """A change of holders causes a sample, after which an interval may be very short."""
    book = shared()
    book.sample(5, 0, process("a", busy=S), busy=S)
    book.sample(5.1, 5, process("a", busy=100 * MS), busy=100 * MS)
    assert loads(book) == {"a": 200_000, "b": 0}
    book.sample(6, 5.1, process("b", busy=500 * MS), busy=500 * MS)
    assert loads(book) == {"a": 100_000, "b": 500_000}


STEPS = st.lists(
    st.tuples(
        st.integers(10, 8000),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9 * S)), max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@given(STEPS)
def test_the_parts_add_up_to_at_most_one_whole(
    steps: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    book = shared()
    now = 0
    for passed, busy in steps:
        since, now = now, now + passed
        processes = [process(pod, busy=part) for pod, part in busy]
        total = sum(part for _, part in busy)
        book.sample(now / 1000, since / 1000, *processes, busy=total)
        known = [part for part in loads(book).values() if part is not None]
        assert sum(known) <= WHOLE
        assert all(part >= 0 for part in known)
