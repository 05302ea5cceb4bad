"""Costs: exact until they are rounded for display, and displayed costs sum to the total."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ledger.reports import (
    GroupBy,
    GroupedUsage,
    PriceClass,
    Prices,
    Sum,
    Tally,
    build_report,
)
from pipeline.ledger.reports.costs import cost, gpu_fraction, round_to_total
from tests.pipeline.ledger.reports.windows import HOUR, MODEL, identity, usage_row, window

WHOLE = PriceClass(MODEL)
HOUR_PRICE = Prices(gpu_hour=Decimal("2.50"))
BOTH = Prices(gpu_hour=Decimal("2.50"), kwh=Decimal("0.31"))


def usage(price: PriceClass, held: float, kwh: float | None) -> GroupedUsage:
    energy = Tally.of(None if kwh is None else round(kwh * 3_600_000_000))
    return GroupedUsage(None, price, round(held * HOUR), energy_mj=energy)


@pytest.mark.parametrize(
    ("model", "profile", "part"),
    [
        (MODEL, None, Fraction(1)),
        ("", None, Fraction(1)),
        (MODEL, "1g.10gb", Fraction(1, 7)),
        (MODEL, "2g.20gb", Fraction(2, 7)),
        (MODEL, "1g.10gb+me", Fraction(1, 7)),
        (MODEL, "1c.3g.40gb", Fraction(1, 7)),
        ("", "7g.80gb", Fraction(1)),
        ("NVIDIA A30", "2g.12gb", Fraction(1, 2)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb", Fraction(1, 4)),
        # Old ledgers have the profile in the model.
        (f"{MODEL} 2g.20gb", "", Fraction(2, 7)),
        # The number of slices of this GPU is unknown.
        (MODEL, "", None),
        ("", "", None),
    ],
)
def test_the_fraction_of_a_gpu_that_is_charged(
    model: str, profile: str | None, part: Fraction | None
) -> None:
    one = PriceClass(model) if profile is None else PriceClass(model, profile, is_instance=True)
    assert gpu_fraction(one) == part


@pytest.mark.parametrize(
    ("prices", "held", "kwh", "expected"),
    [
        (Prices(), 1, 1, Sum()),
        (HOUR_PRICE, 2, None, Sum(Fraction(5))),
        (HOUR_PRICE, 0, None, Sum(Fraction(0))),
        (BOTH, 2, 1, Sum(Fraction("5.31"))),
        (BOTH, 2, None, Sum(Fraction(5), partial=True)),
        (Prices(kwh=Decimal("0.31")), 2, None, Sum()),
        (Prices(gpu_hour=Decimal(0)), 2, 1, Sum(Fraction(0))),
    ],
)
def test_the_cost_of_held_time_and_energy(
    prices: Prices, held: float, kwh: float | None, expected: Sum[Fraction]
) -> None:
    assert cost([usage(WHOLE, held, kwh)], prices) == expected


def test_no_usage_costs_0() -> None:
    assert cost([], BOTH) == Sum(Fraction(0))


def test_a_mig_instance_of_unknown_size_has_no_price_by_the_hour() -> None:
    one, other = usage(PriceClass(MODEL, is_instance=True), 7, 1), usage(WHOLE, 1, 1)
    unknown: Sum[Fraction] = Sum()
    assert cost([one], HOUR_PRICE) == unknown
    assert cost([one, other], HOUR_PRICE) == Sum(Fraction("2.5"), partial=True)


def test_a_total_without_some_of_the_costs_is_marked_as_partial() -> None:
    known, unknown = (
        usage_row("GPU-0", identity("a"), 1, 1, 1),
        usage_row("GPU-1", identity("b"), 1, 1, None),
    )
    found = build_report(window([known, unknown]), GroupBy("pod"), Prices(kwh=Decimal(1)))
    assert [row.cost for row in found.rows] == [Decimal("1.00"), None]
    assert (found.total.cost, found.total.cost_partial) == (Decimal("1.00"), True)


def test_without_prices_there_are_no_costs() -> None:
    found = build_report(
        window([usage_row("GPU-0", identity("a"), 1, 1, 1)]), GroupBy("pod"), Prices()
    )
    assert [row.cost for row in (*found.rows, *found.without_container, found.total)] == [None] * 5
    assert not found.total.partial


def test_rounded_costs_of_three_equal_rows_sum_to_the_rounded_total() -> None:
    rows = [usage_row("GPU-0", identity(name), 1, 1, 1) for name in "abc"]
    found = build_report(window(rows), GroupBy("pod"), Prices(gpu_hour=Decimal("3.335")))
    assert [row.cost for row in found.rows] == [Decimal(text) for text in ("3.34", "3.33", "3.33")]
    assert found.total.cost == Decimal("10.00")


parts = st.lists(st.fractions(min_value=0, max_value=10**12, max_denominator=10**9), max_size=20)


@given(parts, st.integers(0, 4))
def test_rounded_costs_sum_to_the_rounded_total_and_are_close(
    exact: list[Fraction], digits: int
) -> None:
    rounded = round_to_total(exact, digits)
    unit = Fraction(1, 10**digits)
    assert len(rounded) == len(exact)
    assert abs(Fraction(sum(rounded, Decimal(0))) - sum(exact, Fraction(0))) <= unit / 2
    for part, one in zip(exact, rounded, strict=True):
        assert abs(Fraction(one) - part) < unit
        assert -one.as_tuple().exponent == digits  # type: ignore[operator]


@given(st.integers(0, 10**18), st.decimals(0, 10**6, places=9))
def test_costs_are_calculated_without_binary_fractions(held_ns: int, price: Decimal) -> None:
    exact = cost([GroupedUsage(None, WHOLE, held_ns)], Prices(gpu_hour=price)).known
    assert exact == Fraction(price) * held_ns / (3600 * 10**9)
