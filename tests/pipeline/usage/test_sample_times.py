"""At constant rates, totals do not depend on when samples are taken, and they are correct."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import DeviceUsage
from tests.pipeline.usage.samples import MS, Book, S, by_pod, holder, process

END = 60_000
"""End of each test, in milliseconds."""

MOMENTS = st.lists(st.integers(1, END - 1), max_size=8, unique=True).map(
    lambda found: [0, *sorted(found), END]
)
PODS = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from([None, 0.1, 0.25, 1 / 3, 0.5, 1.0]), max_size=3
)
HOLDERS = st.lists(st.tuples(st.integers(0, END), PODS), max_size=6).map(
    lambda found: sorted(found, key=lambda one: one[0])
)
RATES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, MS // 4), max_size=4)
"""Nanoseconds of busy time in a millisecond."""


def account_of(
    moments: list[int],
    holders: list[tuple[int, dict[str, float | None]]],
    rates: dict[str, int],
    power: int,
) -> DeviceUsage:
    """Return the account after samples at some moments.

    Args:
        moments: when samples are taken, in milliseconds.
        holders: the shares of the holders from a moment on, in milliseconds.
        rates: how busy each pod keeps the device; empty if busy time is unknown.
        power: in watts, which is millijoules in a millisecond.
    """
    book = Book()
    book.add(0, None, energy=0)
    changes = list(holders)
    for since, when in pairwise(moments):
        while changes and changes[0][0] < when:
            start, shares = changes.pop(0)
            book.hold(start / 1000, *(holder(pod, share) for pod, share in shares.items()))
        work = {pod: rate * (when - since) for pod, rate in rates.items()}
        book.add(
            when / 1000,
            since / 1000,
            *(process(pod, busy=ns) for pod, ns in work.items()),
            busy=sum(work.values()) if rates else None,
            energy=power * when,
        )
    return book.account()


@given(MOMENTS, MOMENTS, HOLDERS, RATES, st.integers(0, 700))
@settings(deadline=None)
def test_totals_do_not_depend_on_when_samples_are_taken(
    one: list[int],
    other: list[int],
    holders: list[tuple[int, dict[str, float | None]]],
    rates: dict[str, int],
    power: int,
) -> None:
    # Without idle time no idle draw is measured, which would depend on the sample times.
    rates = {} if not any(rates.values()) else rates
    found, again = (account_of(moments, holders, rates, power) for moments in (one, other))
    slack = len(one) + len(other) + 2 * len(holders)
    assert (found.elapsed_ns, found.busy_ns, found.energy_mj) == (
        again.elapsed_ns,
        again.busy_ns,
        again.energy_mj,
    )
    for what in ("held_ns", "busy_ns", "energy_mj"):
        first, second = by_pod(found.containers, what), by_pod(again.containers, what)
        for pod in first.keys() | second.keys():
            assert abs((first.get(pod) or 0) - (second.get(pod) or 0)) <= slack, (what, pod)


@given(MOMENTS, HOLDERS)
@settings(deadline=None)
def test_held_time_follows_the_rule_of_shares(
    moments: list[int], holders: list[tuple[int, dict[str, float | None]]]
) -> None:
    found = by_pod(account_of(moments, holders, {}, 0).containers, "held_ns")
    ends = [when for when, _ in holders[1:]] + [END]
    truth: dict[str, Fraction] = {}
    for (start, shares), end in zip(holders, ends, strict=False):
        for pod, part in parts(shares).items():
            truth[pod] = truth.get(pod, Fraction(0)) + part * (end - start) * MS
    for pod in truth.keys() | found.keys():
        # A share is calculated to 12 digits.
        error = abs((found.get(pod) or 0) - truth.get(pod, Fraction(0)))
        assert error <= len(moments) + len(holders) + END * MS // 10**11


def parts(shares: dict[str, float | None]) -> dict[str, Fraction]:
    """Return the part of each pod, by the documented rule in exact fractions."""
    known = {
        pod: Fraction(share).limit_denominator(1000)
        for pod, share in shares.items()
        if share is not None
    }
    unknown = sorted(shares.keys() - known.keys())
    left = 1 - sum(known.values(), Fraction(0))
    if unknown:
        each = left / len(unknown) if left > 0 else min(known.values())
        known.update(dict.fromkeys(unknown, each))
    whole = max(sum(known.values()), Fraction(1))
    return {pod: part / whole for pod, part in known.items()}


def test_a_minute_of_held_time_is_split_by_share() -> None:
    found = account_of([0, 1, 2, 59_999, END], [(0, {"a": 0.25, "b": None})], {"a": MS // 8}, 100)
    assert found.elapsed_ns == 60 * S
    assert by_pod(found.containers, "held_ns") == {"a": 15 * S, "b": 45 * S}
