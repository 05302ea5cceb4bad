"""Turns: who asks seldom waits for nobody who asks much."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.http import fair_queue as module
from pipeline.http.fair_queue import BusyError, FairQueue, source_of


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Asking:
    """Requests for turns, and the order in which they get one."""

    def __init__(self, at_once: int, waiting: int | None = None) -> None:
        self.turns = FairQueue(at_once, waiting)
        self.order: list[str] = []
        self.refused: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, source: str, times: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._ask(source)) for _ in range(times)]

    async def _ask(self, source: str) -> None:
        try:
            await self.turns.acquire(source)
        except BusyError:
            self.refused.append(source)
        else:
            self.order.append(source)

    async def give(self, times: int = 1) -> None:
        await settled()
        for _ in range(times):
            self.turns.release()
            await settled()


async def test_a_turn_is_there_at_once_unless_all_are_taken() -> None:
    asking = Asking(2)
    asking.ask("a", 3)
    await settled()
    assert (asking.order, len(asking.turns)) == (["a", "a"], 1)
    await asking.give()
    assert (asking.order, len(asking.turns)) == (["a", "a", "a"], 0)


async def test_of_one_source_the_first_comes_first_and_sources_alternate() -> None:
    asking = Asking(1)
    asking.ask("held")
    await settled()
    for source in ("a", "b", "c"):
        asking.ask(source, 2)
    await asking.give(6)
    assert asking.order[1:] == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("sources", [1, 3, 100])
@pytest.mark.parametrize("waiting", [None, 4, 16])
async def test_who_asks_seldom_is_soon_next(sources: int, waiting: int | None) -> None:
    asking = Asking(1, waiting)
    for _ in range(5):
        for at in range(sources):
            asking.ask(f"crowd {at}", 2)
        await asking.give()
    asking.ask("seldom")
    # Others may have had as little, and asked before.
    await asking.give(min(sources, waiting or 100) + 1)
    assert "seldom" in asking.order


async def test_who_has_not_asked_for_long_is_not_ahead_for_long() -> None:
    """It gets as many turns as others, and not those that it had no use for."""
    asking = Asking(1)
    for _ in range(50):
        asking.ask("steady")
        await asking.give()
    asking.ask("late", 20)
    for _ in range(20):
        asking.ask("steady")
        await asking.give()
    assert asking.order[50:].count("steady") >= 9


async def test_further_ones_take_the_place_of_who_asks_most() -> None:
    asking = Asking(1, 3)
    asking.ask("a", 4)
    await settled()
    asking.ask("b")
    asking.ask("a")
    await settled()
    assert asking.refused == ["a", "a"]
    await asking.give(3)
    assert sorted(asking.order) == ["a", "a", "a", "b"]


async def test_sources_that_are_kept_in_mind_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SOURCES", 10)
    asking = Asking(1, 5)
    for at in range(200):
        asking.ask(f"source {at}")
        await settled()
    assert len(asking.turns._requests) <= 10 + 5
    assert len(asking.turns._order) <= 4 * 5 + 64 + 1
    await asking.give(6)
    assert len(asking.order) == 6
    assert asking.turns._free == 1


@pytest.mark.parametrize("sources", [3, 300])
async def test_who_is_known_to_ask_seldom_is_ahead_of_all_who_ask_much(sources: int) -> None:
    """Those may all have had as much as the one with the turn before."""
    asking = Asking(1)
    asking.ask("seldom")
    await asking.give()
    for _ in range(4):
        for at in range(sources):
            asking.ask(f"{at}")
        await asking.give(sources)
    for at in range(sources):
        asking.ask(f"{at}")
    asking.ask("seldom")
    await asking.give()
    assert asking.order[-1] == "seldom"
    asking.ask("seldom")
    await asking.give()
    assert asking.order[-1] != "seldom", "once in each round"


async def test_who_is_next_is_found_soon_among_very_many() -> None:
    asking = Asking(1)
    for at in range(20_000):
        asking.ask(f"{at}")
    await asking.give(1000)
    assert len(asking.order) == 1001
    for task in asking.tasks:
        task.cancel()
    await settled()
    assert len(asking.turns) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "give", "leave", "run"]), st.integers(0, 4)), max_size=60
    ),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(0, 4)),
)
@settings(max_examples=150, deadline=None)
async def test_no_turn_is_lost_or_given_twice(
    steps: list[tuple[str, int]], at_once: int, waiting: int | None
) -> None:
    asking = Asking(at_once, waiting)
    given_back = 0
    for step, number in steps:
        if step == "ask":
            asking.ask(f"{number}")
        elif step == "leave" and asking.tasks:
            asking.tasks[number % len(asking.tasks)].cancel()
        elif step == "give" and given_back < len(asking.order):
            asking.turns.release()
            given_back += 1
        else:
            await asyncio.sleep(0)
        if waiting is not None:
            assert len(asking.turns) <= waiting
        if len(asking.turns):
            turns = asking.turns
            assert turns._served_count(turns._next()) == min(
                map(turns._served_count, turns._waiting)
            )
    await settled()
    assert len(asking.order) - given_back + asking.turns._free == at_once
    if len(asking.turns):
        assert asking.turns._free == 0
    while given_back < len(asking.order):
        given_back += 1
        await asking.give()
    assert (asking.turns._free, len(asking.turns), asking.turns._waiting) == (at_once, 0, {})
    assert all(task.done() for task in asking.tasks)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_a_source_is_an_address_or_a_network_that_one_client_has(address: str, source: str) -> None:
    assert source_of(address) == source
