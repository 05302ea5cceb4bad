"""When all have spoken that could name a holder: at the start, and after reloads."""

import asyncio

import pytest

from pipeline.component.readiness import HolderCompleteness
from pipeline.model import SourceAdded, SourceLost, SourceRemoved
from tests.support.contexts import LoopClock
from tests.support.nodes import Node, claims

pytestmark = pytest.mark.looptime


def waiting(**options: frozenset[str]) -> tuple[HolderCompleteness, Node]:
    complete = HolderCompleteness(LoopClock(), **options)
    complete.begin()
    return complete, Node()


async def test_every_source_is_waited_for() -> None:
    complete, node = waiting()
    assert complete.seconds_left() == 15
    for name in ("kubelet", "checkpoint"):
        node.say(SourceAdded(0), name, name)
    assert not complete.is_complete(node.snapshot())
    node.say(claims(), "kubelet", "kubelet")
    assert not complete.is_complete(node.snapshot())
    await asyncio.sleep(5)
    assert complete.seconds_left() == 10
    node.say(claims(), "checkpoint", "checkpoint")
    assert complete.is_complete(node.snapshot())
    assert complete.seconds_left() <= 0
    # One that is lost later has spoken.
    node.say(SourceLost("gone"), "kubelet", "kubelet")
    assert complete.is_complete(node.snapshot())


async def test_not_longer_than_a_while_from_the_beginning_on() -> None:
    complete, node = waiting()
    await asyncio.sleep(5)
    node.say(SourceAdded(0), "kubelet", "kubelet")
    node.say(SourceLost("refused"), "kubelet", "kubelet")
    assert not complete.is_complete(node.snapshot())
    assert complete.seconds_left() == 10
    assert not complete.has_timed_out
    await asyncio.sleep(10)
    assert complete.is_complete(node.snapshot())
    assert complete.has_timed_out


async def test_some_kinds_are_not_waited_for() -> None:
    complete, node = waiting(besides=frozenset({"podlist"}))
    node.say(SourceAdded(0), "file", "podlist")
    assert complete.is_complete(node.snapshot())


@pytest.mark.parametrize("after", [1, 100])
async def test_one_that_is_added_is_waited_for_as_long(after: float) -> None:
    complete, node = waiting()
    node.say(claims(), "checkpoint", "checkpoint")
    assert complete.is_complete(node.snapshot())
    await asyncio.sleep(after)
    node.say(SourceAdded(0), "kubelet", "podresources")
    assert not complete.is_complete(node.snapshot())
    assert complete.seconds_left() == 15
    await asyncio.sleep(14)
    assert not complete.is_complete(node.snapshot())
    await asyncio.sleep(1)
    assert complete.is_complete(node.snapshot())
    # It had its time.
    assert complete.is_complete(node.snapshot())


@pytest.mark.parametrize("kind", ["podresources", "checkpoint"])
@pytest.mark.parametrize("seen", [True, False])
async def test_so_is_one_that_was_exchanged(kind: str, seen: bool) -> None:
    complete, node = waiting()
    node.say(claims(), "kubelet", "podresources")
    assert complete.is_complete(node.snapshot())
    node.say(SourceRemoved(), "kubelet", "podresources")
    if seen:
        assert complete.is_complete(node.snapshot())
    node.say(SourceAdded(0), "kubelet", kind)
    assert not complete.is_complete(node.snapshot())
    node.say(claims(), "kubelet", kind)
    assert complete.is_complete(node.snapshot())


async def test_one_whose_options_change_continues_as_it_was() -> None:
    complete, node = waiting()
    node.say(claims(), "kubelet", "podresources")
    assert complete.is_complete(node.snapshot())
    node.say(SourceAdded(3), "kubelet", "podresources")
    assert complete.is_complete(node.snapshot())
