"""When all sources of holders have reported: after the start and after reloads."""

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


async def test_holders_are_complete_when_every_source_has_reported() -> None:
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
    # A source that goes down later has reported before.
    node.say(SourceLost("gone"), "kubelet", "kubelet")
    assert complete.is_complete(node.snapshot())


async def test_holders_count_as_complete_after_a_timeout() -> None:
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


async def test_sources_of_excluded_kinds_are_not_waited_for() -> None:
    complete, node = waiting(besides=frozenset({"podlist"}))
    node.say(SourceAdded(0), "file", "podlist")
    assert complete.is_complete(node.snapshot())


@pytest.mark.parametrize("after", [1, 100])
async def test_an_added_source_is_waited_for_until_the_timeout(after: float) -> None:
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
    # It is not waited for again.
    assert complete.is_complete(node.snapshot())


@pytest.mark.parametrize("kind", ["podresources", "checkpoint"])
@pytest.mark.parametrize("seen", [True, False])
async def test_a_replaced_source_is_waited_for(kind: str, seen: bool) -> None:
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


async def test_a_source_whose_options_change_is_not_waited_for_again() -> None:
    complete, node = waiting()
    node.say(claims(), "kubelet", "podresources")
    assert complete.is_complete(node.snapshot())
    node.say(SourceAdded(3), "kubelet", "podresources")
    assert complete.is_complete(node.snapshot())
