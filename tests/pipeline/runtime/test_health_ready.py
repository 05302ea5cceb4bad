"""Tests of readiness, as `/readyz` reports it."""

import logging

import pytest

from pipeline.base.channels import Channel
from pipeline.base.hint_board import HintBoard
from pipeline.base.telemetry import Telemetry
from pipeline.model import DevicesDiscovered, Envelope, Event, SourceAdded, SourceLost
from pipeline.runtime.health import Status
from pipeline.runtime.publisher import Publisher
from tests.support.contexts import LoopClock
from tests.support.nodes import at, gpu

pytestmark = pytest.mark.looptime
FOUND = DevicesDiscovered((gpu(0),))
LOST = SourceLost("all GPUs answer unknown")
CASES: dict[str, tuple[dict[str, list[Event]], bool]] = {
    "GPUs are read": ({"gpus": [FOUND]}, True),
    "the source is down": ({"gpus": [FOUND, LOST]}, False),
    "the source is up again": ({"gpus": [FOUND, LOST, FOUND]}, True),
    "there was never a driver": ({"gpus": [LOST]}, True),
    "a node without GPUs": ({"gpus": [DevicesDiscovered(()), LOST]}, True),
    "another source still reads the GPUs": ({"gpus": [FOUND, LOST], "dcgm": [FOUND]}, True),
    "both sources are down": ({"gpus": [FOUND, LOST], "dcgm": [FOUND, LOST]}, False),
    "a source without devices is down": ({"gpus": [FOUND], "pods": [LOST]}, True),
}


@pytest.mark.parametrize(("events_by_source", "expected"), CASES.values(), ids=CASES.keys())
async def test_t23_podgpu_is_not_ready_while_no_source_reads_the_devices(
    events_by_source: dict[str, list[Event]], expected: bool
) -> None:
    inbox: Channel[Envelope] = Channel(16)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    for order, (source, events) in enumerate(events_by_source.items()):
        for seq, event in enumerate([SourceAdded(order), *events]):
            publisher.join.apply(Envelope(source, source, seq, at(1), event))
    publisher.latest = publisher.join.snapshot(at(1))
    status = Status(publisher, inbox, Telemetry(), LoopClock())
    ready, why = status.ready()
    assert ready is expected
    assert ("is down" in why) is not expected
    assert status.healthy() == (True, "ok"), "a restart would not help"
