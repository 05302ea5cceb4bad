"""Shares by networks, where it says nothing who has had more.

Addresses of one client, however many it has, mostly lie close to each other: in a node's range of
pod addresses, in a prefix of IPv6. So at each bit in which the addresses differ, both sides have
the same right, and who is alone on one side waits for few of the many on the other.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

_BITS: Final = 128
_IPV4: Final = 0xFFFF << 32
_SITE4, _SITE6 = 8, 80
"""Bits in which addresses of one site differ: 24 bits of IPv4 and 48 of IPv6 are the same."""


@lru_cache(4096)
def number_of(source: str) -> int:
    """Return a source as a number, whose high bits say in which network it is.

    Args:
        source: see `pipeline.http.fair_queue.source_of`. What is no address has a network of its
        own.
    """
    try:
        return _IPV4 | int(IPv4Address(source))
    except AddressValueError:
        pass
    try:
        return int(IPv6Address(source.removesuffix("/64")))
    except AddressValueError:
        return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=_BITS // 8).digest())


def site_of(source: str) -> int:
    """Return the network of a source, as the number of its first address.

    It is that of a node's pods, or what a provider gives to one customer.
    """
    number = number_of(source)
    bits = _SITE4 if number >> 32 == _IPV4 >> 32 else _SITE6
    return number >> bits << bits


def next_network(numbers: Sequence[int], turn: int) -> int:
    """Return whose turn it is: at each bit in which they differ, the sides alternate.

    Args:
        numbers: sorted, at least one.
        turn: one more each time.
    """
    low, high = 0, len(numbers)
    while numbers[low] != numbers[high - 1]:
        middle = _middle(numbers, low, high)
        turn, second = divmod(turn, 2)
        low, high = (middle, high) if second else (low, middle)
    return numbers[low]


def largest_network(numbers: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last number of the network that has most.

    It is the smallest one that has more than the other half of each larger one that it is in. Half
    of it has as many as the other half, or it is one source.

    Args:
        numbers: sorted, at least one; each as often as it counts.
    """
    low, high = 0, len(numbers)
    while numbers[low] != numbers[high - 1]:
        middle = _middle(numbers, low, high)
        if middle - low == high - middle:
            break
        low, high = (low, middle) if middle - low > high - middle else (middle, high)
    return numbers[low], numbers[high - 1]


def _middle(numbers: Sequence[int], low: int, high: int) -> int:
    """Return where those begin that have the first bit that isn't the same in all."""
    bit = (numbers[low] ^ numbers[high - 1]).bit_length() - 1
    return bisect_left(numbers, numbers[high - 1] >> bit << bit, low, high)
