"""Fair shares among client networks, where it is not known which client used more.

The addresses of one client, however many it has, are mostly close to each other: in a node's range
of pod addresses, or in an IPv6 prefix. So at each bit in which addresses differ, both halves get
the same share. A client that is the only one in its half does not wait for the many in the other
half.
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
"""Number of low bits that addresses of one site differ in: sites are IPv4 /24 and IPv6 /48."""


@lru_cache(4096)
def number_of(source: str) -> int:
    """Return a source as a 128-bit number whose high bits are its network.

    Args:
        source: see `pipeline.http.fair_queue.source_of`. If it is not an address, the number is a
            hash of the text, so that the source is in a network of its own.
    """
    try:
        address = ip_address(source.removesuffix("/64"))
    except ValueError:
        return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=_BITS // 8).digest())
    return int(address) if address.version == 6 else _IPV4 | int(address)


def site_of(source: str) -> int:
    """Return the site of a source, as the number of the site's first address.

    A site is the network of a node's pods, or the network that a provider gives to one customer.
    """
    number = number_of(source)
    bits = _SITE_BITS4 if number >> 32 == _IPV4 >> 32 else _SITE_BITS6
    return number >> bits << bits


def next_network(numbers: Sequence[int], turn: int) -> int:
    """Return the number that has the next turn.

    At each bit in which numbers differ, the turns alternate between both halves.

    Args:
        numbers: numbers of the waiting sources, sorted; at least one.
        turn: number of the turn; the caller increases it by one with each call.
    """
    low, high = 0, len(numbers)
    while numbers[low] != numbers[high - 1]:
        middle = _middle(numbers, low, high)
        turn, second = divmod(turn, 2)
        low, high = (middle, high) if second else (low, middle)
    return numbers[low]


def largest_network(numbers: Sequence[int]) -> tuple[int, int]:
    """Return the lowest and the highest number in the network with most entries.

    It starts with all numbers, and takes the half with more entries again and again, until both
    halves have the same number of entries, or only one source is left.

    Args:
        numbers: numbers of sources, sorted; at least one. A source with several connections has
            several entries.
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
