"""Units of the tables of `podgpu usage`: every value that is not 0 can be read."""

import pytest

from podgpu.cli.usage.units import HOUR_NS, digits_of, scaled, span


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
    ("largest", "digits"), [(0, 3), (9, 3), (10, 2), (99, 2), (100, 1), (10**9, 1)]
)
def test_a_larger_number_has_fewer_digits(largest: int, digits: int) -> None:
    assert digits_of(largest * HOUR_NS, HOUR_NS) == digits


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
