"""Connections and bytes of the listeners: bounded in sum, and shared by source."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.http.client_shares import ClientAccounting, ClientConnection, State
from pipeline.http.limits import Limits


class Party:
    """Guests, as a server has them: who is ended leaves."""

    def __init__(self, **limits: int) -> None:
        self.limits = Limits(**limits)
        self.shares = ClientAccounting(self.limits)
        self.guests: list[ClientConnection] = []
        self.ended: list[ClientConnection] = []

    def admit(self, source: str, state: State = "idle") -> ClientConnection:
        guest = self.shares.admit(source)
        guest.abort = lambda: self._end(guest)
        self.guests.append(guest)
        self.shares.set_state(guest, state)
        return guest

    def _end(self, guest: ClientConnection) -> None:
        if guest in self.guests:
            self.guests.remove(guest)
            self.ended.append(guest)
            self.shares.remove(guest)

    def of(self, source: str) -> int:
        return sum(guest.source == source and not guest.reserved for guest in self.guests)


@pytest.mark.parametrize("state", ["idle", "reading", "queued", "working", "sending"])
async def test_r2_a_source_with_little_always_gets_in(state: State) -> None:
    """Whatever becomes of the connections of the one that has all of them."""
    party = Party(connections=10, reserve=2)
    for _ in range(12):
        party.admit("much", state)
    for number in range(1, 5):
        assert not party.admit("little", state).reserved
        assert party.of("little") == number
    assert (party.of("little"), party.of("much")) == (4, 6)


async def test_sources_end_up_with_equal_shares() -> None:
    party = Party(connections=12)
    for source in ("a", "b", "c"):
        for _ in range(20):
            party.admit(source, "working")
    assert [party.of(source) for source in "abc"] == [4, 4, 4]


async def test_who_has_little_is_no_victim_of_who_has_much() -> None:
    party = Party(connections=10)
    scraper = party.admit("little")
    for _ in range(50):
        party.admit("much")
    assert scraper in party.guests


async def test_the_one_that_waits_longest_makes_room_within_a_source() -> None:
    party = Party(connections=3)
    first, second, third = (party.admit("a") for _ in range(3))
    party.shares.set_state(first, "idle")
    party.admit("a")
    assert party.ended == [second]
    party.shares.set_state(third, "working")
    party.admit("a")
    assert party.ended == [second, first]


async def test_a_probe_has_a_reserve_where_all_are_busy() -> None:
    party = Party(connections=5, reserve=2)
    busy = [party.admit(f"{at}", "working") for at in range(5)]
    probes = [party.admit("1") for _ in range(4)]
    assert [guest.reserved for guest in (*busy, *probes)] == [False] * 5 + [True] * 4
    assert party.ended == probes[:2], "the newest have it"
    assert len(party.shares) == 7


async def test_of_equals_the_one_that_has_had_most_answers_makes_room() -> None:
    party = Party(connections=3)
    guests = [party.admit(f"{at}", "working") for at in range(3)]
    for guest, answers in zip(guests, (1, 3, 2), strict=True):
        for _ in range(answers):
            party.shares.set_state(guest, "idle")
        party.shares.set_state(guest, "queued")
    party.admit("new")
    assert party.ended == [guests[1]]


@pytest.mark.parametrize("state", ["idle", "reading", "queued", "sending"])
async def test_r3_a_network_with_many_sources_keeps_no_other_out(state: State) -> None:
    party = Party(connections=20, reserve=2)
    for at in range(100):
        party.admit(f"10.1.0.{at}", state)
    for at in range(5):
        assert not party.admit(f"10.2.0.{at}", "working").reserved
    for at in range(100):
        party.admit(f"10.1.1.{at}", state)
    assert sum(party.of(f"10.2.0.{at}") for at in range(5)) == 5


async def test_r7_where_descriptors_are_short_fewer_are_taken_for_a_while() -> None:
    party = Party()
    party.shares.reduce_limit()
    for source in ("a", *["b"] * 30, "c"):
        party.admit(source)
    party.shares.reduce_limit()
    assert {guest.source for guest in party.ended} == {"b"}
    left = len(party.guests)
    assert left < 32
    party.admit("d")
    assert len(party.guests) == left, "it takes the place of another"
    party.shares.restore_limit()
    party.admit("e")
    assert len(party.guests) == left + 1


# Bytes.


async def test_bytes_are_at_the_cost_of_the_source_that_has_most() -> None:
    party = Party(bytes=700)
    much = [party.admit("much", "reading") for _ in range(3)]
    for guest in much:
        assert party.shares.grow(guest, 300)
    little = party.admit("little", "reading")
    assert party.shares.grow(little, 250)
    assert party.ended == much[:1]
    assert party.shares.held == 850


async def test_the_largest_gives_way_where_others_fill_the_room() -> None:
    party = Party(bytes=1000)
    for at in range(10):
        party.shares.grow(party.admit(f"{at}", "reading"), 100)
    huge = party.admit("huge", "reading")
    assert party.shares.grow(huge, 100_000), "one may be of any size"
    assert party.shares.grow(party.admit("small", "reading"), 100)
    assert party.ended == [huge]


async def test_a_page_that_many_get_counts_once() -> None:
    party, page = Party(bytes=1000), b"x" * 900
    sent = [party.shares.sending(party.admit(f"{at}", "sending"), (page, b"")) for at in range(50)]
    for one in sent:
        one.__enter__()
    assert (party.shares.held, party.ended) == (900, [])
    for one in sent:
        one.__exit__(None, None, None)
    assert party.shares.held == 0


async def test_r1_pages_that_are_not_taken_make_room_for_another() -> None:
    """Each of another moment, by clients that don't read: a scraper gets its page."""
    party = Party(bytes=1000)
    for at in range(30):
        page = bytes(300)
        party.shares.sending(party.admit(f"{at}", "sending"), (page,)).__enter__()
        assert party.shares.held <= 1300
    scraper = party.admit("scraper", "sending")
    party.shares.sending(scraper, (bytes(350),)).__enter__()
    assert scraper in party.guests


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "state", "head", "grow", "keep", "send", "leave"]),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    max_size=80,
)


@given(_STEPS)
@settings(max_examples=200, deadline=None)
async def test_what_is_held_is_counted_and_bounded(steps: list[tuple[str, int, int]]) -> None:
    party = Party(connections=6, reserve=2, bytes=100)
    states: tuple[State, ...] = ("idle", "reading", "queued", "working", "sending")
    kept, sent = [], []
    for step, number, size in steps:
        if step == "admit":
            party.admit(f"{number}", states[size % 5])
            continue
        if not party.guests:
            continue
        guest = party.guests[number % len(party.guests)]
        match step:
            case "state":
                party.shares.set_state(guest, states[size % 5])
            case "head":
                party.shares.grow_head(guest, size)
                party.shares.shrink_head(guest, size // 2)
            case "grow":
                before = guest.held
                grown = party.shares.grow(guest, size * 6)
                assert guest.held == (before + size * 6 if grown else 0)
            case "keep" if guest.held > guest.head:
                kept.append(party.shares.count_until_released(guest, guest.held - guest.head))
            case "send" if not guest.answer:
                sent.append(party.shares.sending(guest, (b"x" * size, b"y" * number)))
                sent[-1].__enter__()
            case "leave":
                guest.abort()
            case _:
                pass
        counts = Counter(one.source for one in party.guests if not one.reserved)
        assert counts == party.shares._sources
        assert sum(counts.values()) <= 6
        assert len(party.shares) == len(party.guests) <= 8
        heads = sum(one.head for one in party.guests)
        most = max((one.bytes for one in (*party.guests, *party.ended)), default=0)
        assert party.shares.held <= 100 + most + heads
    for gone in kept:
        gone()
    for one in sent:
        one.__exit__(None, None, None)
    for guest in list(party.guests):
        guest.abort()
        party.shares.shrink(guest, guest.held)
    for guest in party.ended:
        party.shares.shrink(guest, guest.held)
    assert (len(party.shares), party.shares.held, party.shares._holding) == (0, 0, {})
    assert not party.shares._answers
