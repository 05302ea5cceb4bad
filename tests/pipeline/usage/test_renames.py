"""A container that gets its full name later has the usage that it would have had under one name."""

from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import DeviceUsage, Evidence, Holder, Holding, PartialRef
from pipeline.usage import ContainerName
from tests.pipeline.usage.samples import GPU, Book, S, holder, name, process
from tests.pipeline.usage.test_restored_accounts import continuing, restored
from tests.support.nodes import START, at

A: Final = name("a", "main")
OTHERS: Final = [process(name("a", "side")), process(name("a", "more"))]
NAMELESS: Final[ContainerName] = ("", "", "", A[3])
NAMELESS_HOLDER: Final = Holder(PartialRef(uid=A[3]), 1.0, START, "kubelet", Evidence.KUBELET_IDS)


class Sample(NamedTuple):
    """A sample with memory and busy time of the container under each of its two names.

    Attributes:
        after: seconds since the previous sample.
        counts: whether there was no break since then.
    """

    after: int
    counts: bool
    memory: tuple[int, int]
    busy: tuple[int, int]


SAMPLES: Final = st.lists(
    st.builds(
        Sample,
        st.integers(1, 9),
        st.sampled_from([True, True, False]),
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.integers(0, S // 2), st.integers(0, S // 2)),
    ),
    max_size=6,
)


@given(
    SAMPLES,
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.booleans(),
)
def test_holdings_under_two_names_are_merged_into_one(
    samples: list[Sample], first: tuple[int, int], share: float, released: bool
) -> None:
    """Either name may be first, and one of them may have ended without being reported.

    While the other containers of the pod are seen, it is unknown which one has no name.
    """
    two_names, one_name = Book(), Book()
    now = 0
    for number, sample in enumerate([Sample(1, False, (0, 0), (0, 0)), *samples]):
        there = [n for n in (0, 1) if number >= first[n] or number == len(samples)]
        if released and 1 in there:
            for book in (two_names, one_name):
                book.hold(now, holder("a", share))
        since, now = now if sample.counts else None, now + sample.after
        shown = [
            process((NAMELESS, A)[n], memory=sample.memory[n], busy=sample.busy[n])
            for n in there
            if n == 0 or not released
        ]
        used = sum(one.memory_bytes or 0 for one in shown)
        busy = sum(one.busy_ns or 0 for one in shown)
        counted = busy if sample.counts else None
        two_names.sample(now, since, *OTHERS, *shown, used=used, busy=counted)
        one = [process._replace(container=A) for process in shown]
        one_name.sample(now, since, *OTHERS, *one, used=used, busy=counted)
    for book in (two_names, one_name):
        # If it held the device, that holding has ended, and no later sample has been taken.
        book.hold(now + 0.5)
        book.hold(now + 1, holder("a"))
        book.sample(now + 5, now, *OTHERS, process(A, memory=3), used=3, busy=0)
    assert only_holding(two_names.account()) == only_holding(one_name.account())
    ours, right = (peak(book.account()) for book in (two_names, one_name))
    assert ours <= right
    # While the names were two, the container contested the device with itself.
    ours, right = (contested(book.account()) for book in (two_names, one_name))
    assert ours >= right - len(samples)  # rounded down in each sample


def only_holding(account: DeviceUsage) -> Holding:
    one, *_ = account.containers
    assert one.holding is not None
    assert not one.closing
    return replace(
        one.holding,
        id="",
        memory_peak_bytes=None,
        busy_peak_ppm=None,
        contested_ns=None,
        switching_ns=None,
    )


def contested(account: DeviceUsage) -> int:
    one, *_ = account.containers
    assert one.holding is not None
    assert (one.holding.contested_ns is None) == (one.holding.busy_ns is None)
    return one.holding.contested_ns or 0


def peak(account: DeviceUsage) -> int:
    one, *_ = account.containers
    assert one.holding is not None
    assert one.holding.memory_peak_bytes is not None
    return one.holding.memory_peak_bytes


@pytest.mark.parametrize(
    ("released", "sampled", "counted"),
    [(50, 47, 8), (45, 47, 3), (42.5, 47, 0.5)],
    ids=["no look has passed its end", "its energy isn't known yet", "at once"],
)
def test_a_restored_container_seen_under_another_name_ends_when_that_name_does(
    released: float, sampled: float, counted: float
) -> None:
    book = restored()
    book.hold(41, NAMELESS_HOLDER)
    book.sample(42, None, energy=1000)
    if released < sampled:
        book.hold(released)
    book.sample(sampled, 42, energy=None)
    if released >= sampled:
        book.hold(released)
    book.accounts.set_container_name(GPU.uuid, NAMELESS, A, None)
    book.sample(55, sampled, energy=2000)
    [one] = book.usage().ended
    assert (one.start, one.end) == (at(4), at(released))
    assert (one.counted_ns, one.gap_ns) == (round((6 + counted) * S), 32 * S)
    assert one.held_ns == round((2 + counted) * S)


def test_a_reported_holding_is_final_and_the_restored_one_ends_before_it() -> None:
    book = restored()
    book.hold(41, NAMELESS_HOLDER)
    book.sample(42, None)
    book.hold(45)
    book.sample(47, 42)
    book.accounts.set_container_name(GPU.uuid, NAMELESS, A, None)
    book.sample(55, 47)
    first, second = sorted(book.usage().ended, key=lambda one: one.start)
    assert (first.start, first.end, first.counted_ns, first.gap_ns) == (at(4), at(10), 6 * S, 0)
    assert (second.start, second.end, second.counted_ns) == (at(42), at(45), 3 * S)


@pytest.mark.parametrize("seen", [True, False])
def test_a_restored_container_that_gets_its_name_counts_as_seen(seen: bool) -> None:
    book = restored()
    book.sample(42, None, *([process(NAMELESS)] if seen else ()))
    book.sample(47, 42, process(NAMELESS))
    book.accounts.set_container_name(GPU.uuid, NAMELESS, A, None)
    for _ in range(2):
        one = continuing(book)
        assert (one.counted_ns, one.gap_ns) == (6 * S + 5 * S, 32 * S)
        assert (one.unseen_counted_ns, one.unseen_gap_ns) == (0, 0)
        book.accounts.expire(at(48))
