"""From the inbox to the outlets: what is published when."""

import asyncio
import logging

from pipeline.channels import Channel
from pipeline.hints import HintBoard
from pipeline.model import (
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Event,
    HolderChanged,
    SamplesTaken,
    Snapshot,
)
from pipeline.publishing import Publisher
from tests.support.nodes import START, claim, claims, gpu, reading, uuid_of

GPUS = (gpu(0), gpu(1))


async def published(*events: tuple[str, Event]) -> list[Snapshot]:
    """Let a publisher work off events that all wait in its inbox; return what it published."""
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    outlet: Channel[Snapshot] = Channel(100)
    publisher.outlets["all"] = outlet
    for seq, (source, event) in enumerate(events, 1):
        await inbox.put(Envelope(source, source, seq, START, event))
    inbox.close()
    await publisher.run()
    outlet.close()
    return [snapshot async for snapshot in outlet]


def pods(snapshot: Snapshot) -> list[str]:
    found = snapshot.layout.attributions.values()
    return [holder.subject.pod for known in found for holder in known.holders]


SAMPLE = SamplesTaken(tuple(reading(device, "power_watts", 1) for device in GPUS))


async def test_dimensions_that_wait_together_make_one_snapshot() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("podlist", claims(claim("b", uuid_of(0)))),
    )
    assert [pods(snapshot) for snapshot in snapshots] == [["b"]]


async def test_a_sample_is_a_barrier_on_both_sides() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("gpus", SAMPLE),
        ("podlist", claims(claim("b", uuid_of(0)))),
        ("gpus", SAMPLE),
    )
    assert [(pods(s), len(s.fresh)) for s in snapshots] == [
        (["a"], 0),
        (["a"], 2),
        (["b"], 0),
        (["b"], 2),
    ]


async def test_what_changes_nothing_publishes_nothing() -> None:
    said = claims(claim("a", uuid_of(0)))
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", said),
        ("gpus", SAMPLE),
        ("podlist", said),
        ("gpus", DevicesDiscovered(GPUS)),
        ("", ClockTicked()),
    )
    assert len(snapshots) == 2


async def test_a_change_of_holders_alone_is_published_with_nothing_fresh() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("gpus", SAMPLE),
        ("podlist", claims(claim("a", uuid_of(0)))),
    )
    assert snapshots[-1].fresh == ()
    assert len(snapshots[-1].readings) == 2


async def test_hints_merge_until_they_are_taken() -> None:
    board = HintBoard()
    hints = board.subscribe()
    first = asyncio.ensure_future(anext(hints))
    await asyncio.sleep(0)
    board.post(HolderChanged(frozenset({"a"})))
    board.post(HolderChanged(frozenset({"b"})))
    assert await first == HolderChanged(frozenset({"a", "b"}))
    board.post(HolderChanged(frozenset({"c"})))
    assert await anext(hints) == HolderChanged(frozenset({"c"}))


async def test_nobody_listening_to_hints_costs_nothing() -> None:
    HintBoard().post(HolderChanged(frozenset({"a"})))
