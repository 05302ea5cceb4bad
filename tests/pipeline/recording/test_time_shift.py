"""An event of a recording is shifted to another time, and not changed otherwise."""

import re
from dataclasses import replace

from hypothesis import given, settings

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
from tests.pipeline.recording.strategies import events
from tests.support.examples import examples
from tests.support.nodes import START, claim, claims, gpu, mig, reading


def instants_in(value: object) -> list[tuple[int, int]]:
    discovered = re.findall(r"Instant\(mono_ns=(-?\d+), wall_ns=(-?\d+)\)", repr(value))
    return [(int(mono), int(wall)) for mono, wall in discovered]


@given(events)
@settings(max_examples=examples(50))
def test_every_instant_is_shifted_and_nothing_else_changes(event: Event) -> None:
    shifted_event = shifted(
        event, lambda i: Instant(i.mono_ns + 5, i.wall_ns - 7), lambda validity: validity + 1
    )
    assert instants_in(shifted_event) == [(mono + 5, wall - 7) for mono, wall in instants_in(event)]
    back = shifted(
        shifted_event,
        lambda i: Instant(i.mono_ns - 5, i.wall_ns + 7),
        lambda validity: validity - 1,
    )
    assert back == event


def test_each_validity_is_stretched() -> None:
    process_list = ProcessList("GPU-0", (), START, 3 * NS)
    sampled = SamplesTaken((reading("GPU-0", "power_watts", 1, good_for=5),), (process_list,))
    stretched = shifted(sampled, lambda i: i, lambda validity: 2 * validity)
    assert stretched.readings[0].good_for_ns == 10 * NS
    assert stretched.processes[0].good_for_ns == 6 * NS
    claimed = claims(claim("pod", "GPU-0"), good_for=60)
    assert shifted(claimed, lambda i: i, lambda validity: 2 * validity) == replace(
        claimed, good_for_ns=120 * NS
    )


def test_events_without_times_are_not_changed() -> None:
    discovered = DevicesDiscovered((gpu(0), mig(gpu(0), 1)))
    assert shifted(discovered, lambda _: Instant(0, 0), lambda _: 0) == discovered


def test_times_since_when_something_has_existed_are_converted_differently() -> None:
    def move(moment: Instant) -> Instant:
        return Instant(moment.mono_ns + 5, moment.wall_ns + 5)

    def move_start(moment: Instant) -> Instant:
        return Instant(moment.mono_ns - 9, moment.wall_ns - 9)

    held = claims(replace(claim("pod", "GPU-0"), since=START))
    (moved,) = shifted(held, move, lambda validity: validity, move_start).claims
    assert moved.since == move_start(START)
    one = reading("GPU-0", "power_watts", 1)._replace(window_start=START)
    (measured,) = shifted(SamplesTaken((one,)), move, lambda v: v, move_start).readings
    assert (measured.at, measured.window_start) == (move(START), move(START))
