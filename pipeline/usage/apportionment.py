"""Exact division of an integer into parts, and sums of amounts that may be unknown."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Split an integer in proportion to weights, by the largest remainder method.

    Each part differs from its exact share by less than 1. Among equal remainders, the earlier part
    gets more.

    Args:
        total: 0 or more.
        weights: each 0 or more, one of them more than 0.

    Returns:
        As many parts as weights; their sum is `total`.

    Raises:
        ValueError: no weight is more than 0.
    """
    total_weight = sum(weights)
    if total_weight <= 0:
        raise ValueError("nothing can be split by weights that are all 0")
    if len(weights) == 1:
        return [total]
    exact = [divmod(total * weight, total_weight) for weight in weights]
    parts = [part for part, _ in exact]
    remainders = [remainder for _, remainder in exact]
    rest = total - sum(parts)
    if rest:
        for i in sorted(range(len(remainders)), key=remainders.__getitem__, reverse=True)[:rest]:
            parts[i] += 1
    return parts


def known_values(*amounts: T | None) -> list[T]:
    """Return the amounts that are not None."""
    return [amount for amount in amounts if amount is not None]


def sum_known(one: int | None, more: int | None) -> int | None:
    """Return the sum of the known amounts; None if both are unknown."""
    parts = known_values(one, more)
    return sum(parts) if parts else None
