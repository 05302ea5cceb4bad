"""Sets of GPUs as integers: bit N stands for card N of the topology."""

from collections.abc import Iterable, Iterator


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(numbers: Iterable[int]) -> int:
    """Return the mask in which the given bits are set."""
    return sum(1 << number for number in set(numbers))


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as a text with ranges: `0-3,6`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
