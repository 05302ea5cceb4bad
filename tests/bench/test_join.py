"""The join with 100,000 events, compared with the least work that any join must do."""

import time

from pipeline.join import Join
from pipeline.model import (
    ClaimsReplaced,
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Event,
    Reading,
    SamplesTaken,
)
from tests.support.nodes import at, claim, claims, gpu, mig, reading

EVENTS = 100_000
GPUS = [gpu(index) for index in range(8)]
DEVICES = [*GPUS, *(mig(parent, gi) for parent in GPUS for gi in range(1, 8))]
FIELDS = ("memory_total_bytes", "memory_free_bytes", "memory_used_bytes", "memory_reserved_bytes")


def events() -> list[Envelope]:
    """Return events of 56 MIG instances: readings, ticks, and a change of holders per hundred."""
    made: list[Envelope] = []
    for seq in range(EVENTS):
        when = at(seq / 100)
        event: Event
        if seq == 0:
            event = DevicesDiscovered(tuple(DEVICES))
        elif seq % 100 == 1:
            moved = DEVICES[8 + seq // 100 % 56]
            held = [claim(f"pod-{n}", device.uuid) for n, device in enumerate(DEVICES[8:])]
            event = claims(*held, claim(f"new-{seq}", moved.uuid))
        elif seq % 10 == 2:
            event = ClockTicked()
        else:
            device = DEVICES[seq % len(DEVICES)]
            event = SamplesTaken(
                tuple(reading(device, field, seq, when=when, good_for=600) for field in FIELDS)
            )
        made.append(Envelope("source", "kind", seq, when, event))
    return made


def joined(work: list[Envelope]) -> tuple[float, float]:
    """Return the seconds for the events only, and with the runtime's snapshot after each."""
    join = Join()
    start = time.perf_counter()
    for envelope in work:
        join.apply(envelope)
    events_only = time.perf_counter() - start
    join = Join()
    start = time.perf_counter()
    for envelope in work:
        if join.apply(envelope).changed:
            join.snapshot(envelope.at)
    return events_only, time.perf_counter() - start


def kept(work: list[Envelope]) -> float:
    """Return the seconds of the baseline: a dictionary with the newest reading of each series."""
    latest: dict[tuple[str, str, object], Reading] = {}
    start = time.perf_counter()
    for envelope in work:
        if isinstance(envelope.event, SamplesTaken):
            for found in envelope.event.readings:
                latest[found.device, found.field, found.attrs] = found
        elif isinstance(envelope.event, ClaimsReplaced):
            held = {raw: c.subject for c in envelope.event.claims for raw in c.devices}
            assert held
    return time.perf_counter() - start


def test_the_join_against_a_dictionary() -> None:
    work = events()
    bare = min(kept(work) for _ in range(3))
    events_only, whole = (
        min(times) for times in zip(*(joined(work) for _ in range(3)), strict=True)
    )
    print(
        f"\n{EVENTS} events, 64 devices        seconds   us an event   ratio to a bare dictionary"
    )
    for name, spent in (
        ("bare dictionary", bare),
        ("join", events_only),
        ("join and snapshots", whole),
    ):
        print(f"{name:28} {spent:9.2f} {1e6 * spent / EVENTS:13.1f} {spent / bare:8.1f}")
    assert events_only / bare < 40
