"""Integers in parts that add up."""

from collections.abc import Sequence


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Split a whole number by weights, by the method of largest remainder.

    Each part is within 1 of its exact share. Of equal remainders the earlier part gets more.

    Args:
        total: 0 or more.
        weights: each 0 or more, one of them more than 0.

    Returns:
        As many parts as weights; their sum is `total`.

    Raises:
        ValueError: no weight is more than 0.
    """
    whole = sum(weights)
    if whole <= 0:
        raise ValueError("nothing can be split by weights that are all 0")
    if len(weights) == 1:
        return [total]
    parts: list[int] = []
    rests: list[int] = []
    for weight in weights:
        part, rest = divmod(total * weight, whole)
        parts.append(part)
        rests.append(rest)
    left = total - sum(parts)
    if left:
        for place in sorted(range(len(rests)), key=rests.__getitem__, reverse=True)[:left]:
            parts[place] += 1
    return parts
