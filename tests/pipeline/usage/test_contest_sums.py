"""Contested time while holders and processes change: sums, growth, and sole users."""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import ContainerUsage, Holding
from tests.pipeline.usage.samples import MS, Book, S, holder, process
from tests.support.examples import examples

PODS = st.sets(st.sampled_from("abc"))
BUSY = st.sampled_from([0, 1 * MS, 700 * MS, 2 * S])


class Step(NamedTuple):
    """Five seconds between two usage samples.

    Attributes:
        holders: pods that hold the device from the second second on.
        busy: busy time of the process of each pod; None is a process outside of containers.
        unknown: busy time of a process that ended before its container was read; None without one.
        follows: whether the sample follows the last one without a gap.
        listed: whether the processes could be listed.
        mps: whether an MPS server runs.
    """

    holders: set[str]
    busy: dict[str | None, int | None]
    unknown: int | None
    follows: bool
    listed: bool
    mps: bool


def mostly(usual: bool) -> st.SearchStrategy[bool]:
    return st.integers(0, 5).map(lambda drawn: usual if drawn < 5 else not usual)


def steps(pods: str) -> st.SearchStrategy[list[Step]]:
    names = st.sampled_from([*pods, None]) if len(pods) > 1 else st.just(pods)
    step = st.builds(
        Step,
        PODS,
        st.dictionaries(names, BUSY | st.none(), max_size=4),
        (st.none() | BUSY) if len(pods) > 1 else st.none(),
        mostly(True),
        mostly(True),
        mostly(False) if len(pods) > 1 else st.just(False),
    )
    return st.lists(step, min_size=2, max_size=8)


def play(found: Iterable[Step], book: Book) -> Iterable[list[ContainerUsage]]:
    """Yield the containers after each step."""
    book.sample(0, None)
    for number, step in enumerate(found):
        begin = number * 5
        book.hold(begin + 2, *map(holder, sorted(step.holders)))
        processes = [process(pod, busy=busy) for pod, busy in step.busy.items()]
        if step.unknown is not None:
            processes.append(process(None, busy=step.unknown, known=False, there=False))
        book.sample(
            begin + 5,
            begin if step.follows else None,
            *processes,
            busy=sum(one.busy_ns or 0 for one in processes),
            listed=step.listed,
            mps=step.mps,
        )
        yield [*book.account().containers]


@given(steps("abc"))
@settings(max_examples=examples(100), deadline=None)
def test_totals_grow_and_are_the_sums_over_holdings(found: list[Step]) -> None:
    book = Book()
    before: dict[str, tuple[int, int]] = {}
    for containers in play(found, book):
        ended = book.usage().ended
        for one in containers:
            if one.contested_ns is None or one.switching_ns is None:
                continue
            now = one.contested_ns, one.switching_ns
            last = before.get(one.id, (0, 0))
            assert last[0] <= now[0]
            assert last[1] <= now[1]
            before[one.id] = now
            own = [each for each in ended if each.subject == one.subject] + [*one.closing]
            own += [] if one.holding is None else [one.holding]
            if all(each.busy_ns is not None for each in own):
                assert now == _sums(own)


@given(steps("a"))
@settings(max_examples=examples(50), deadline=None)
def test_a_sole_user_is_exact_whoever_holds_the_device(found: list[Step]) -> None:
    for containers in play(found, Book()):
        for one in containers:
            if one.contested_ns is not None:
                assert (one.contested_ns, one.switching_ns) == (0, 0)


def _sums(holdings: list[Holding]) -> tuple[int, int]:
    return (
        sum(one.contested_ns or 0 for one in holdings),
        sum(one.switching_ns or 0 for one in holdings),
    )
