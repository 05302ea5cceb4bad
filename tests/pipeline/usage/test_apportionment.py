"""Splitting a whole number by weights."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.usage import apportion

WEIGHTS = st.lists(st.integers(0, 1 << 70), min_size=1, max_size=12).filter(any)


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        (0, [1, 2], [0, 0]),
        (10, [7], [10]),
        (10, [1, 1], [5, 5]),
        (10, [1, 1, 1], [4, 3, 3]),
        (11, [1, 1, 1], [4, 4, 3]),
        (10, [0, 3], [0, 10]),
        (10, [1, 2, 1], [3, 5, 2]),
        (3, [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]),
        (100, [1, 1, 998], [0, 0, 100]),
    ],
)
def test_the_largest_remainder_gets_one_more_and_the_first_of_equal_ones(
    total: int, weights: list[int], parts: list[int]
) -> None:
    assert apportion(total, weights) == parts


@given(st.integers(0, 1 << 70), WEIGHTS)
def test_parts_sum_to_the_total_and_each_differs_from_its_exact_share_by_less_than_1(
    total: int, weights: list[int]
) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(total * weight, sum(weights))) < 1


@pytest.mark.parametrize("weights", [[], [0], [0, 0]])
def test_weights_that_are_all_zero_are_an_error(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="all 0"):
        apportion(3, weights)
