"""Which price is valid for a model in a cluster at a time."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.loader import parse_struct
from config.price_file import PriceFile
from pipeline.ledger.reports.price_list import PriceList, State

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


def test_a_span_without_a_change_is_one_period() -> None:
    assert PRICES.periods(at(2026, 11, 1), at(2026, 12, 1)) == [(at(2026, 11, 1), at(2026, 12, 1))]


def test_a_change_at_the_start_or_the_end_makes_no_period() -> None:
    start, end = at(2026, 6, 30, 22), at(2026, 9, 30, 22)
    assert PRICES.periods(start, end) == [(start, end)]


@given(
    st.integers(at(2025, 12, 1) // HOUR, at(2026, 12, 1) // HOUR),
    st.integers(1, 9000),
    st.sampled_from(["NVIDIA H200", "NVIDIA H100 PCIe", "NVIDIA L4"]),
    st.sampled_from(["prod-1", "lab", ""]),
    st.sampled_from(["held", "free", "unknown"]),
)
def test_in_a_period_no_price_changes(
    first: int, hours: int, model: str, cluster: str, state: State
) -> None:
    start, end = first * HOUR, (first + hours) * HOUR
    periods = PRICES.periods(start, end)
    assert [periods[0][0], periods[-1][1]] == [start, end]
    assert [each[1] for each in periods[:-1]] == [each[0] for each in periods[1:]]
    for begins, ends in periods:
        for when in (begins + HOUR, ends - 1):
            if when < ends:
                assert PRICES.gpu_hour(state, model, cluster, when) == PRICES.gpu_hour(
                    state, model, cluster, begins
                )
                assert PRICES.kwh(cluster, when) == PRICES.kwh(cluster, begins)
