"""Tests of fair shares among networks: a lone client does not wait for a network with many."""

from collections import Counter
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.http.fair_queue import source_of
from pipeline.http.network_fairness import largest_network, next_network, number_of, site_of

NUMBERS = st.lists(st.integers(0, (1 << 128) - 1), min_size=1, max_size=40, unique=True).map(sorted)


def forks(numbers: list[int], mine: int) -> int:
    """Return the number of bits at which other numbers start to differ from this one."""
    lowest = {(mine ^ other).bit_length() for other in numbers} - {0}
    return len(lowest)


@given(NUMBERS, st.integers(0, 1 << 40), st.data())
def test_a_number_has_one_turn_in_two_to_the_power_of_its_forks(
    numbers: list[int], turn: int, data: st.DataObject
) -> None:
    mine = data.draw(st.sampled_from(numbers))
    every = 2 ** forks(numbers, mine)
    if every <= 1 << 12:
        had = Counter(next_network(numbers, turn + at) for at in range(every))
        assert had[mine] == 1


@pytest.mark.parametrize("many", [1, 100, 5000])
@pytest.mark.parametrize(
    ("network", "mine"),
    [
        ("10.1.0.0", "10.2.0.1"),
        ("10.1.0.0", "192.168.0.1"),
        ("2001:db8::", "10.2.0.1"),
        ("2001:db8::", "2001:db8:1::/64"),
        ("10.1.0.0", "no address"),
    ],
)
def test_a_client_alone_in_its_half_gets_every_second_turn(
    network: str, mine: str, many: int
) -> None:
    number = number_of(mine)
    others = [
        number_of(network if ":" not in network else f"{network}/64") + at for at in range(many)
    ]
    numbers = sorted([*others, number])
    assert [next_network(numbers, at) for at in range(8)].count(number) == 4
    low, high = largest_network(sorted([*others, others[0], number]))
    assert not low <= number <= high


@given(NUMBERS)
def test_the_largest_network_has_more_members_than_its_neighbours(numbers: list[int]) -> None:
    low, high = largest_network(numbers)
    inside = [one for one in numbers if low <= one <= high]
    assert inside
    top = max(numbers[0] ^ numbers[-1], 1).bit_length()
    for bits in range((low ^ high).bit_length() + 1, top + 1):
        mine = sum(one >> bits - 1 == low >> bits - 1 for one in numbers)
        whole = sum(one >> bits == low >> bits for one in numbers)
        assert 2 * mine > whole


@given(
    st.one_of(
        st.integers(0, (1 << 32) - 1).map(IPv4Address),
        st.integers(0, (1 << 128) - 1).map(IPv6Address),
    )
)
def test_each_source_has_its_own_number(address: IPv4Address | IPv6Address) -> None:
    source = source_of(str(address))
    number = number_of(source)
    assert 0 <= number < 1 << 128
    assert source_of(str(IPv6Address(number))) == source


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.1.2.3", "10.1.2.250", True),
        ("10.1.2.3", "10.1.3.3", False),
        ("2001:db8:1:2::/64", "2001:db8:1:ffff::/64", True),
        ("2001:db8:1:2::/64", "2001:db8:2:2::/64", False),
        ("10.1.2.3", "::/64", False),
    ],
)
def test_a_site_is_an_ipv4_24_or_an_ipv6_48_network(one: str, other: str, *, same: bool) -> None:
    assert (site_of(one) == site_of(other)) == same


def test_a_source_that_is_not_an_address_has_a_number() -> None:
    assert len({number_of(""), number_of("?"), number_of("10.0.0.1")}) == 3
