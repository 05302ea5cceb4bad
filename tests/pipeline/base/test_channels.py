"""Tests of `Channel`: its limit, its end and the items that it drops."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.channels import Channel, ChannelClosedError


async def test_put_waits_while_the_channel_is_full() -> None:
    channel: Channel[int] = Channel(1)
    await channel.put(1)
    waiting = asyncio.create_task(channel.put(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await channel.take() == 1
    await waiting
    assert await channel.take() == 2


async def test_offer_to_a_full_channel_drops_the_oldest_item_and_reports_it() -> None:
    dropped: list[int] = []
    channel: Channel[int] = Channel(2, on_drop=dropped.append)
    for item in range(5):
        channel.offer(item)
    assert dropped == [0, 1, 2]
    assert [channel.take_nowait(), channel.take_nowait(), channel.take_nowait()] == [3, 4, None]


async def test_a_closed_channel_delivers_its_waiting_items_and_then_ends() -> None:
    channel: Channel[int] = Channel(4)
    for item in range(3):
        channel.offer(item)
    channel.close()
    assert [item async for item in channel] == [0, 1, 2]
    assert await channel.take() is None


async def test_closing_wakes_a_producer_and_a_consumer() -> None:
    full: Channel[int] = Channel(1)
    await full.put(1)
    producer = asyncio.create_task(full.put(2))
    empty: Channel[int] = Channel(1)
    consumer = asyncio.create_task(empty.take())
    await asyncio.sleep(0)
    full.close()
    empty.close()
    with pytest.raises(ChannelClosedError):
        await producer
    assert await consumer is None


async def test_a_closed_channel_refuses_items() -> None:
    channel: Channel[int] = Channel(1)
    channel.close()
    with pytest.raises(ChannelClosedError):
        channel.offer(1)
    with pytest.raises(ChannelClosedError):
        await channel.put(1)


async def test_all_waiting_producers_can_put_their_item() -> None:
    channel: Channel[int] = Channel(1)
    producers = [asyncio.create_task(channel.put(item)) for item in range(10)]
    taken = [await channel.take() for _ in range(10)]
    await asyncio.gather(*producers)
    assert sorted(item for item in taken if item is not None) == list(range(10))


@given(st.lists(st.one_of(st.integers(), st.none())), st.integers(1, 5))
def test_each_offered_item_is_taken_waiting_or_reported_as_dropped(
    steps: list[int | None], capacity: int
) -> None:
    """A step of None takes one item; a step of a number offers it."""

    dropped: list[int] = []
    channel: Channel[int] = Channel(capacity, on_drop=dropped.append)
    offered = [step for step in steps if step is not None]
    taken: list[int] = []
    for step in steps:
        if step is None:
            item = channel.take_nowait()
            taken += [item] if item is not None else []
        else:
            channel.offer(step)
        assert len(channel) <= capacity
    waiting = len(channel)
    assert len(offered) == len(taken) + len(dropped) + waiting
