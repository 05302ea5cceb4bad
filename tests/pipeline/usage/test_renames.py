"""What a container had under two names is what it would have had under one."""

from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import DeviceUsage, Evidence, Holder, Holding, PartialRef
from pipeline.usage import ContainerName
from tests.pipeline.usage.looking import GPU, Book, S, holder, name, process
from tests.pipeline.usage.test_restored_accounts import again, continuing
from tests.support.nodes import START, at

A: Final = name("a", "main")
OTHERS: Final = [process(name("a", "side")), process(name("a", "more"))]
NAMELESS: Final[ContainerName] = ("", "", "", A[3])
NAMELESS_HOLDER: Final = Holder(PartialRef(uid=A[3]), 1.0, START, "kubelet", Evidence.KUBELET_IDS)


class Look(NamedTuple):
    """Which of the two names a look shows, with how much memory and busy time.

    Attributes:
        after: seconds since the look before.
        counts: whether there was no break since then.
    """

    after: int
    counts: bool
    memory: tuple[int, int]
    busy: tuple[int, int]


LOOKS: Final = st.lists(
    st.builds(
        Look,
        st.integers(1, 9),
        st.sampled_from([True, True, False]),
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.integers(0, S // 2), st.integers(0, S // 2)),
    ),
    max_size=6,
)


@given(
    LOOKS,
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.booleans(),
)
def test_two_holdings_put_together_are_one(
    looks: list[Look], first: tuple[int, int], share: float, released: bool
) -> None:
    """Whichever name was there first; one of them may have ended, and isn't told of yet.

    While the pod's other containers are seen, nobody knows which of them the nameless one is.
    """
    apart, whole = Book(), Book()
    now = 0
    for number, look in enumerate([Look(1, False, (0, 0), (0, 0)), *looks]):
        there = [n for n in (0, 1) if number >= first[n] or number == len(looks)]
        if released and 1 in there:
            for book in (apart, whole):
                book.hold(now, holder("a", share))
        since, now = now if look.counts else None, now + look.after
        shown = [
            process((NAMELESS, A)[n], memory=look.memory[n], busy=look.busy[n])
            for n in there
            if n == 0 or not released
        ]
        used = sum(one.memory_bytes or 0 for one in shown)
        busy = sum(one.busy_ns or 0 for one in shown)
        counted = busy if look.counts else None
        apart.look(now, since, *OTHERS, *shown, used=used, busy=counted)
        one = [process._replace(container=A) for process in shown]
        whole.look(now, since, *OTHERS, *one, used=used, busy=counted)
    for book in (apart, whole):
        # If it held the device, that holding has ended, and no look has passed its end.
        book.hold(now + 0.5)
        book.hold(now + 1, holder("a"))
        book.look(now + 5, now, *OTHERS, process(A, memory=3), used=3, busy=0)
    assert given_out(apart.of()) == given_out(whole.of())
    ours, right = (peak(book.of()) for book in (apart, whole))
    assert ours <= right


def given_out(account: DeviceUsage) -> Holding:
    one, *_ = account.containers
    assert one.holding is not None
    assert not one.closing
    return replace(one.holding, id="", memory_peak_bytes=None, busy_peak_ppm=None)


def peak(account: DeviceUsage) -> int:
    one, *_ = account.containers
    assert one.holding is not None
    assert one.holding.memory_peak_bytes is not None
    return one.holding.memory_peak_bytes


@pytest.mark.parametrize(
    ("released", "looked", "counted"),
    [(50, 47, 8), (45, 47, 3), (42.5, 47, 0.5)],
    ids=["no look has passed its end", "its energy isn't known yet", "at once"],
)
def test_an_awaited_container_that_was_seen_under_another_name_ended_with_that(
    released: float, looked: float, counted: float
) -> None:
    book = again()
    book.hold(41, NAMELESS_HOLDER)
    book.look(42, None, energy=1000)
    if released < looked:
        book.hold(released)
    book.look(looked, 42, energy=None)
    if released >= looked:
        book.hold(released)
    book.accounts.set_container_name(GPU.uuid, NAMELESS, A, None)
    book.look(55, looked, energy=2000)
    [one] = book.usage().ended
    assert (one.start, one.end) == (at(4), at(released))
    assert (one.counted_ns, one.gap_ns) == (round((6 + counted) * S), 32 * S)
    assert one.held_ns == round((2 + counted) * S)


def test_what_was_reported_of_it_under_another_name_is_final_and_the_awaited_one_ended_before() -> (
    None
):
    book = again()
    book.hold(41, NAMELESS_HOLDER)
    book.look(42, None)
    book.hold(45)
    book.look(47, 42)
    book.accounts.set_container_name(GPU.uuid, NAMELESS, A, None)
    book.look(55, 47)
    first, second = sorted(book.usage().ended, key=lambda one: one.start)
    assert (first.start, first.end, first.counted_ns, first.gap_ns) == (at(4), at(10), 6 * S, 0)
    assert (second.start, second.end, second.counted_ns) == (at(42), at(45), 3 * S)


@pytest.mark.parametrize("seen", [True, False])
def test_who_is_seen_under_one_name_is_awaited_under_none(seen: bool) -> None:
    book = again()
    book.look(42, None, *([process(NAMELESS)] if seen else ()))
    book.look(47, 42, process(NAMELESS))
    book.accounts.set_container_name(GPU.uuid, NAMELESS, A, None)
    for _ in range(2):
        one = continuing(book)
        assert (one.counted_ns, one.gap_ns) == (6 * S + 5 * S, 32 * S)
        assert (one.unseen_counted_ns, one.unseen_gap_ns) == (0, 0)
        book.accounts.expire(at(48))
