"""Units of the tables of `podgpu usage`: every value that is not 0 can be read."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgpu.cli.usage.units import (
    ENERGIES,
    HOUR_NS,
    TIMES,
    Scale,
    Unit,
    digits_of,
    scaled,
    span,
)
from tests.support.examples import examples

MS = 10**6
S = 10**9
MIN = 60 * S
DAY = 24 * HOUR_NS
KWH = 3_600_000_000
QUANTITIES: tuple[tuple[Callable[[Sequence[int]], Scale], Sequence[Unit]], ...] = (
    (Scale.of_times, TIMES),
    (Scale.of_energies, ENERGIES),
)


@pytest.mark.parametrize(
    ("values", "symbol", "texts"),
    [
        # Nothing is used.
        ([0], "h", ["0.0"]),
        # The first seconds, minutes and hours.
        ([12 * S, 300 * MS], "s", ["12.0", "0.3"]),
        ([90 * S, 45 * S], "min", ["1.5", "0.8"]),
        ([25 * MIN, 3 * MIN], "min", ["25.0", "3.0"]),
        ([25 * MIN, 2 * S], "s", ["1500.0", "2.0"]),
        ([20 * HOUR_NS, 4 * HOUR_NS], "h", ["20.0", "4.0"]),
        ([20 * HOUR_NS, 2 * MIN], "min", ["1200.0", "2.0"]),
        ([20 * HOUR_NS, -2 * MIN], "min", ["1200.0", "-2.0"]),
        # The table would have too large numbers in a smaller unit.
        ([30 * DAY, 2 * MIN, -12 * S], "h", ["720.000", "0.033", "-0.003"]),
        ([20 * HOUR_NS, 2 * S], "min", ["1200.00", "0.03"]),
        # No unit of a table is small enough.
        ([20 * HOUR_NS, 20 * MS, 3], "h", ["20.0", "<0.1", "<0.1"]),
        ([20 * MS], "s", ["0.02"]),
    ],
)
def test_the_times_of_a_table_have_one_unit(
    values: list[int], symbol: str, texts: list[str]
) -> None:
    scale = Scale.of_times(values)
    assert scale.unit.symbol == symbol
    assert [scale.text(value) for value in values] == texts


@pytest.mark.parametrize(
    ("values", "symbol", "texts"),
    [
        ([0], "kWh", ["0.000"]),
        ([12 * KWH, KWH // 2], "kWh", ["12.000", "0.500"]),
        ([KWH // 100, KWH // 10_000], "Wh", ["10.000", "0.100"]),
        ([KWH // 100_000], "J", ["36.0"]),
        ([230 * KWH, 119 * KWH], "kWh", ["230", "119"]),
        ([2_000 * KWH, KWH // 1000], "kWh", ["2000.000", "0.001"]),
        ([2 * KWH, KWH * 145 // 10_000, KWH * 64 // 10_000], "Wh", ["2000.00", "14.50", "6.40"]),
    ],
)
def test_the_energies_of_a_table_have_one_unit(
    values: list[int], symbol: str, texts: list[str]
) -> None:
    scale = Scale.of_energies(values)
    assert scale.unit.symbol == symbol
    assert [scale.text(value) for value in values] == texts


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(QUANTITIES), st.lists(st.integers(-(10**17), 10**17), min_size=1))
def test_every_value_can_be_read(
    quantity: tuple[Callable[[Sequence[int]], Scale], Sequence[Unit]], values: list[int]
) -> None:
    of, units = quantity
    scale = of(values)
    size = scale.unit.size
    assert scale.unit in units
    for value in values:
        text = scale.text(value)
        if text[0] in "<>":
            assert 0 < abs(value) <= Decimal(size) / 2000, "less than the last of three decimals"
            continue
        assert re.fullmatch(r"-?[0-9]+(\.[0-9]{1,3})?", text)
        assert Decimal(text) != 0 or not value
        rounding = Decimal(size) / 10**scale.digits / 2
        assert abs(Decimal(text) * size - value) <= rounding


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 1, "0.0"),
        (1, 1, "<0.1"),
        (-1, 1, ">-0.1"),
        (HOUR_NS, 1, "1.0"),
        (-HOUR_NS, 1, "-1.0"),
        (HOUR_NS // 10, 1, "0.1"),
        (10**12 * HOUR_NS, 1, "1000000000000.0"),
        (HOUR_NS // 2, 3, "0.500"),
    ],
)
def test_a_number_is_scaled_and_rounded(value: int, digits: int, text: str) -> None:
    assert scaled(value, HOUR_NS, digits) == text


@pytest.mark.parametrize(
    ("hours", "digits"),
    [(0, 3), (0.001, 3), (0.999, 3), (1, 2), (9.9, 2), (10, 1), (99, 1), (100, 0), (10**9, 0)],
)
def test_a_larger_number_has_fewer_digits(hours: float, digits: int) -> None:
    assert digits_of(round(hours * HOUR_NS), HOUR_NS) == digits


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0.0 s"),
        (1, "<0.1 ms"),
        (2 * 10**7, "20.0 ms"),
        (3 * 10**8, "0.3 s"),
        (59 * 10**9, "59.0 s"),
        (90 * 10**9, "1.5 min"),
        (HOUR_NS, "1.0 h"),
        (36 * HOUR_NS, "1.5 d"),
    ],
)
def test_a_duration_is_shown_in_one_unit(ns: int, text: str) -> None:
    assert span(ns) == text
