"""Tests of the fair queue: sources with few requests do not wait for sources with many."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.http import fair_queue as module
from pipeline.http.fair_queue import BusyError, FairQueue, source_of
from tests.support.examples import examples


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Requests:
    """Requests for turns, and the order in which they get them."""

    def __init__(self, at_once: int, waiting: int | None = None) -> None:
        self.queue = FairQueue(at_once, waiting)
        self.order: list[str] = []
        self.refused: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def request(self, source: str, times: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._request(source)) for _ in range(times)]

    async def _request(self, source: str) -> None:
        try:
            await self.queue.acquire(source)
        except BusyError:
            self.refused.append(source)
        else:
            self.order.append(source)

    async def release(self, times: int = 1) -> None:
        await settled()
        for _ in range(times):
            self.queue.release()
            await settled()


async def test_a_request_waits_only_if_all_turns_are_taken() -> None:
    requests = Requests(2)
    requests.request("a", 3)
    await settled()
    assert (requests.order, len(requests.queue)) == (["a", "a"], 1)
    await requests.release()
    assert (requests.order, len(requests.queue)) == (["a", "a", "a"], 0)


async def test_sources_alternate_and_requests_of_one_source_are_in_order() -> None:
    requests = Requests(1)
    requests.request("held")
    await settled()
    for source in ("a", "b", "c"):
        requests.request(source, 2)
    await requests.release(6)
    assert requests.order[1:] == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("sources", [1, 3, 100])
@pytest.mark.parametrize("waiting", [None, 4, 16])
async def test_a_source_with_one_request_is_served_soon(sources: int, waiting: int | None) -> None:
    requests = Requests(1, waiting)
    for _ in range(5):
        for at in range(sources):
            requests.request(f"crowd {at}", 2)
        await requests.release()
    requests.request("seldom")
    # Other sources can have had as few turns, and requested earlier.
    await requests.release(min(sources, waiting or 100) + 1)
    assert "seldom" in requests.order


async def test_a_source_that_was_idle_has_no_advantage_for_long() -> None:
    """It gets as many turns as other sources, without the turns that it did not use before."""
    requests = Requests(1)
    for _ in range(50):
        requests.request("steady")
        await requests.release()
    requests.request("late", 20)
    for _ in range(20):
        requests.request("steady")
        await requests.release()
    assert requests.order[50:].count("steady") >= 9


async def test_a_full_queue_rejects_requests_of_the_source_with_most() -> None:
    requests = Requests(1, 3)
    requests.request("a", 4)
    await settled()
    requests.request("b")
    requests.request("a")
    await settled()
    assert requests.refused == ["a", "a"]
    await requests.release(3)
    assert sorted(requests.order) == ["a", "a", "a", "b"]


async def test_the_number_of_remembered_sources_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SOURCES", 10)
    requests = Requests(1, 5)
    for at in range(200):
        requests.request(f"source {at}")
        await settled()
    assert len(requests.queue._requests) <= 10 + 5
    assert len(requests.queue._order) <= 4 * 5 + 64 + 1
    await requests.release(6)
    assert len(requests.order) == 6
    assert requests.queue._free == 1


@pytest.mark.parametrize("sources", [3, 300])
async def test_a_source_known_for_few_requests_is_served_before_all_others(sources: int) -> None:
    """All others may have had the same number of turns."""
    requests = Requests(1)
    requests.request("seldom")
    await requests.release()
    for _ in range(4):
        for at in range(sources):
            requests.request(f"{at}")
        await requests.release(sources)
    for at in range(sources):
        requests.request(f"{at}")
    requests.request("seldom")
    await requests.release()
    assert requests.order[-1] == "seldom"
    requests.request("seldom")
    await requests.release()
    assert requests.order[-1] != "seldom", "it is first only once in each round"


@pytest.mark.slow
async def test_the_next_request_is_found_fast_among_20000() -> None:
    requests = Requests(1)
    for at in range(20_000):
        requests.request(f"{at}")
    await requests.release(1000)
    assert len(requests.order) == 1001
    for task in requests.tasks:
        task.cancel()
    await settled()
    assert len(requests.queue) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["request", "release", "leave", "run"]), st.integers(0, 4)),
        max_size=60,
    ),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(0, 4)),
)
@settings(max_examples=examples(100), deadline=None)
async def test_no_turn_is_lost_or_assigned_twice(
    steps: list[tuple[str, int]], at_once: int, waiting: int | None
) -> None:
    requests = Requests(at_once, waiting)
    released = 0
    for step, number in steps:
        if step == "request":
            requests.request(f"{number}")
        elif step == "leave" and requests.tasks:
            requests.tasks[number % len(requests.tasks)].cancel()
        elif step == "release" and released < len(requests.order):
            requests.queue.release()
            released += 1
        else:
            await asyncio.sleep(0)
        if waiting is not None:
            assert len(requests.queue) <= waiting
        if len(requests.queue):
            queue = requests.queue
            assert queue._served_count(queue._next()) == min(
                map(queue._served_count, queue._waiting)
            )
    await settled()
    assert len(requests.order) - released + requests.queue._free == at_once
    if len(requests.queue):
        assert requests.queue._free == 0
    while released < len(requests.order):
        released += 1
        await requests.release()
    assert (requests.queue._free, len(requests.queue), requests.queue._waiting) == (at_once, 0, {})
    assert all(task.done() for task in requests.tasks)


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
def test_a_source_is_an_ipv4_address_or_an_ipv6_64_network(address: str, source: str) -> None:
    assert source_of(address) == source
