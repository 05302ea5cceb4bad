"""Which price is valid for a model in a cluster at a time."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.loader import parse_struct
from config.price_file import PriceFile
from pipeline.ledger.reports.costs import State, cost
from pipeline.ledger.reports.grouped_usage import GroupedUsage, PriceClass
from pipeline.ledger.reports.price_list import PriceList
from pipeline.ledger.reports.sums import Sum, Tally

HOUR = 3_600 * 10**9

FILE = """
currency: EUR
tz: Europe/Berlin
gpu_hour:
  - model: NVIDIA H200
    cluster: prod-*
    prices: {2026-10-01: 2.80, 2026-01-01: 2.50}
  - model: "*H100*"
    prices: {2026-01-01: 2}
  - cluster: lab
    prices: {2026-06-01: 0.10}
free_gpu_hour:
  - model: NVIDIA H200
    prices: {2026-01-01: 0}
unknown_gpu_hour:
  - cluster: lab
    prices: {2026-01-01: 0.05}
kwh:
  - cluster: lab
    prices: {2026-01-01: 0.20}
  - prices: {2026-07-01: 0.31}
"""
PRICES = PriceList.of_file(parse_struct(FILE, PriceFile, origin="prices.yaml"))


def at(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 10**9  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("state", "model", "cluster", "when", "price"),
    [
        # The day begins at midnight in Berlin, which is 22:00 UTC in summer.
        ("held", "NVIDIA H200", "prod-1", at(2026, 9, 30, 21), "2.50"),
        ("held", "NVIDIA H200", "prod-1", at(2026, 9, 30, 22), "2.80"),
        ("held", "NVIDIA H200", "prod-1", at(2030, 1, 1), "2.80"),
        # Before the first day, the price is unknown.
        ("held", "NVIDIA H200", "prod-1", at(2025, 12, 31, 22), None),
        # No entry matches the model in this cluster.
        ("held", "NVIDIA H200", "test", at(2026, 11, 1), None),
        ("held", "NVIDIA H2000", "prod-1", at(2026, 11, 1), None),
        ("held", "nvidia h200", "prod-1", at(2026, 11, 1), None),
        ("held", "NVIDIA H100 80GB HBM3", "", at(2026, 11, 1), "2"),
        ("held", "NVIDIA H100 80GB HBM3", "lab", at(2026, 11, 1), "2"),
        ("held", "", "lab", at(2026, 11, 1), "0.10"),
        # The first entry that matches applies, also if a later one has an earlier day.
        ("unknown", "NVIDIA H200", "lab", at(2026, 2, 1), "0.05"),
        ("held", "NVIDIA H200", "lab", at(2026, 2, 1), None),
        # Free and unknown time without an own entry has the price of held time.
        ("free", "NVIDIA H200", "prod-1", at(2026, 11, 1), "0"),
        ("free", "NVIDIA H100 PCIe", "prod-1", at(2026, 11, 1), "2"),
        ("unknown", "NVIDIA H200", "prod-1", at(2026, 11, 1), "2.80"),
    ],
)
def test_the_price_of_an_hour(
    state: State, model: str, cluster: str, when: int, price: str | None
) -> None:
    expected = None if price is None else Decimal(price)
    assert PRICES.gpu_hour(state, model, cluster, when) == expected


@pytest.mark.parametrize(
    ("cluster", "when", "price"),
    [
        ("lab", at(2026, 1, 1), "0.20"),
        ("prod-1", at(2026, 1, 1), None),
        ("prod-1", at(2026, 8, 1), "0.31"),
        ("", at(2026, 8, 1), "0.31"),
    ],
)
def test_the_price_of_energy(cluster: str, when: int, price: str | None) -> None:
    assert PRICES.kwh(cluster, when) == (None if price is None else Decimal(price))


def test_prices_change_at_these_times() -> None:
    assert PRICES.changes == (
        at(2025, 12, 31, 23),
        at(2026, 5, 31, 22),
        at(2026, 6, 30, 22),
        at(2026, 9, 30, 22),
    )


@given(
    st.integers(at(2025, 12, 1) // HOUR, at(2026, 12, 1) // HOUR),
    st.sampled_from(["NVIDIA H200", "NVIDIA H100 PCIe", "NVIDIA L4"]),
    st.sampled_from(["prod-1", "lab", ""]),
    st.sampled_from(["held", "free", "unknown"]),
)
def test_between_two_changes_no_price_changes(
    hour: int, model: str, cluster: str, state: State
) -> None:
    when = hour * HOUR
    change = max((each for each in PRICES.changes if each <= when), default=0)
    at_change = PRICES.gpu_hour(state, model, cluster, change)
    assert at_change == PRICES.gpu_hour(state, model, cluster, when)
    assert PRICES.kwh(cluster, change) == PRICES.kwh(cluster, when)


@pytest.mark.parametrize(
    ("profile", "price"),
    [("1g.18gb", Fraction(2, 7)), ("3g.71gb", Fraction(6, 7)), ("", None)],
)
def test_a_mig_instance_has_a_part_of_the_price_of_its_gpu(
    profile: str, price: Fraction | None
) -> None:
    one = PriceClass("NVIDIA H100 PCIe", profile, is_instance=True, since_ns=at(2026, 11, 1))
    assert PRICES.hour_price(one, "held") == price


def used(
    model: str, cluster: str, *, held: int = 0, free: int = 0, unknown: int = 0, mj: int | None
) -> GroupedUsage:
    price = PriceClass(model, cluster=cluster, since_ns=at(2026, 2, 1))
    return GroupedUsage(None, price, held, free, unknown, energy_mj=Tally.of(mj))


def test_each_missing_price_is_named_once() -> None:
    usage = [
        used("NVIDIA L4", "prod-1", held=1, mj=5),
        used("NVIDIA L4", "prod-1", held=2, free=3, mj=None),
        used("NVIDIA H200", "prod-1", held=2, mj=5),
        # The price of held time is missing, but there was none.
        used("NVIDIA L4", "lab", unknown=7, mj=5),
        # There was no energy.
        used("NVIDIA H200", "prod-2", held=7, mj=0),
    ]
    assert [each.split(" for a part")[0] for each in PRICES.missing(usage)] == [
        "the price file has no price of a kilowatt hour in cluster prod-1",
        "the price file has no price of an hour of NVIDIA L4 in cluster prod-1",
    ]


def test_a_cost_without_a_price_is_unknown_and_not_0() -> None:
    known = used("NVIDIA H200", "prod-1", held=HOUR, mj=None)
    unknown = used("NVIDIA L4", "prod-1", held=HOUR, mj=None)
    nothing: Sum[Fraction] = Sum()
    assert cost([known], PRICES) == Sum(Fraction("2.5"), partial=True)  # its energy is unknown
    assert cost([unknown], PRICES) == nothing
    assert cost([known, unknown], PRICES) == Sum(Fraction("2.5"), partial=True)


def test_usage_of_two_prices_costs_the_sum() -> None:
    def hours(number: int, since: int) -> GroupedUsage:
        price = PriceClass("NVIDIA H200", cluster="prod-1", since_ns=since)
        energy = Tally.of(3_600_000_000)  # 1 kWh
        return GroupedUsage(None, price, held_ns=number * HOUR, energy_mj=energy)

    before, after = hours(10, at(2026, 8, 1)), hours(3, at(2026, 10, 1))
    assert cost([before, after], PRICES) == Sum(25 + Fraction("8.4") + 2 * Fraction("0.31"))
