"""Fair shares among client networks, where it is not known which client used more.

The addresses of one client, however many it has, are mostly close to each other: in a node's range
of pod addresses, or in an IPv6 prefix. So at each bit in which addresses differ, both halves get
the same share, and a client that is alone in one half does not wait for the many in the other.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

_BITS: Final = 128
_IPV4: Final = 0xFFFF << 32
_SITE_BITS4, _SITE_BITS6 = 8, 80
"""Low bits of an address within a site: the sites are IPv4 /24 and IPv6 /48."""


@lru_cache(4096)
def number_of(source: str) -> int:
    """Return a source as a number whose high bits are its network.

    Args:
        source: see `pipeline.http.fair_queue.source_of`. If it is not an address, the number is a
            hash, that is a network with this one source.
    """
    try:
        address = ip_address(source.removesuffix("/64"))
    except ValueError:
        return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=_BITS // 8).digest())
    return int(address) if address.version == 6 else _IPV4 | int(address)


def site_of(source: str) -> int:
    """Return the site of a source, as the number of the site's first address.

    A site is the network of a node's pods, or what a provider gives to one customer.
    """
    number = number_of(source)
    bits = _SITE_BITS4 if number >> 32 == _IPV4 >> 32 else _SITE_BITS6
    return number >> bits << bits


def next_network(numbers: Sequence[int], turn: int) -> int:
    """Return the number that is next: at each bit in which numbers differ, the halves alternate.

    Args:
        numbers: sorted, at least one.
        turn: increases by one with each call.
    """
    low, high = 0, len(numbers)
    while numbers[low] != numbers[high - 1]:
        middle = _middle(numbers, low, high)
        turn, second = divmod(turn, 2)
        low, high = (middle, high) if second else (low, middle)
    return numbers[low]


def largest_network(numbers: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last number of the network with most entries.

    From all numbers, take the half with more entries again and again, until both halves are equal
    or one source is left.

    Args:
        numbers: sorted, at least one; a number appears as often as it counts.
    """
    low, high = 0, len(numbers)
    while numbers[low] != numbers[high - 1]:
        middle = _middle(numbers, low, high)
        if middle - low == high - middle:
            break
        low, high = (low, middle) if middle - low > high - middle else (middle, high)
    return numbers[low], numbers[high - 1]


def _middle(numbers: Sequence[int], low: int, high: int) -> int:
    """Return the index of the first number with a 1 in the highest bit that differs."""
    bit = (numbers[low] ^ numbers[high - 1]).bit_length() - 1
    return bisect_left(numbers, numbers[high - 1] >> bit << bit, low, high)
