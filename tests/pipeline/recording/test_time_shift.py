"""An event of a recording is moved to another time, and nothing else of it changes."""

import re
from dataclasses import replace

from hypothesis import given

from pipeline.model import (
    NS,
    DevicesDiscovered,
    Event,
    Instant,
    ProcessList,
    SamplesTaken,
)
from pipeline.recording import (
    shifted,
)
from tests.pipeline.recording.recorded import events
from tests.support.nodes import START, claim, claims, gpu, mig, reading


def moments(value: object) -> list[tuple[int, int]]:
    found = re.findall(r"Instant\(mono_ns=(-?\d+), wall_ns=(-?\d+)\)", repr(value))
    return [(int(mono), int(wall)) for mono, wall in found]


@given(events)
def test_every_instant_is_moved_and_nothing_else(event: Event) -> None:
    there = shifted(event, lambda i: Instant(i.mono_ns + 5, i.wall_ns - 7), lambda good: good + 1)
    assert moments(there) == [(mono + 5, wall - 7) for mono, wall in moments(event)]
    back = shifted(there, lambda i: Instant(i.mono_ns - 5, i.wall_ns + 7), lambda good: good - 1)
    assert back == event


def test_each_good_for_is_stretched() -> None:
    listed = ProcessList("GPU-0", (), START, 3 * NS)
    taken = SamplesTaken((reading("GPU-0", "power_watts", 1, good_for=5),), (listed,))
    moved = shifted(taken, lambda i: i, lambda good: 2 * good)
    assert moved.readings[0].good_for_ns == 10 * NS
    assert moved.processes[0].good_for_ns == 6 * NS
    said = claims(claim("pod", "GPU-0"), good_for=60)
    assert shifted(said, lambda i: i, lambda good: 2 * good) == replace(said, good_for_ns=120 * NS)


def test_events_without_times_stay_as_they_are() -> None:
    found = DevicesDiscovered((gpu(0), mig(gpu(0), 1)))
    assert shifted(found, lambda _: Instant(0, 0), lambda _: 0) == found
