"""A usage sample of a node with 56 MIG instances, compared with a round of readings.

Both pass through the join as in the runtime: the event is applied, and a snapshot is taken.
"""

import time
from collections.abc import Callable

from pipeline.fields import FieldPlan
from pipeline.join import Join
from pipeline.model import (
    NS,
    Claim,
    ContainersReplaced,
    DevicesDiscovered,
    DeviceUse,
    Envelope,
    Event,
    Evidence,
    Origin,
    PartialRef,
    ProcessesSampled,
    ProcessUse,
    RawDeviceId,
    RunningContainer,
    SamplesTaken,
    SourceAdded,
)
from tests.support.nodes import at, every_field, gpu, mig

GPUS = [gpu(index) for index in range(8)]
INSTANCES = [mig(parent, gi) for parent in GPUS for gi in range(1, 8)]
PROCESSES = 200
SAMPLES = 60


def subject(number: int) -> PartialRef:
    return PartialRef("ml", f"pod-{number}", "main", f"uid-{number}", f"{number:064x}")


def known_events() -> list[tuple[str, Event]]:
    """Return the previous events: a container on each instance, and many without a device."""
    held = [
        Claim(subject(n), (RawDeviceId("uuid", one.uuid),), 1.0, None, Origin(Evidence.RUNTIME_CDI))
        for n, one in enumerate(INSTANCES)
    ]
    running = tuple(
        RunningContainer(subject(n), claims=(held[n],) if n < len(held) else ())
        for n in range(PROCESSES)
    )
    return [
        ("gpus", SourceAdded(0)),
        ("runtime", SourceAdded(1)),
        ("gpus", DevicesDiscovered((*GPUS, *INSTANCES))),
        ("runtime", ContainersReplaced(running, 1 << 60)),
    ]


def usage_sample(number: int) -> ProcessesSampled:
    """Return the n-th usage sample, at intervals of five seconds, of one process per container."""
    when, since = at(5 * number), at(5 * number - 5) if number else None
    uses = []
    for place, device in enumerate(INSTANCES):
        processes = tuple(
            ProcessUse(pid, pid, _OWNERS[pid], "compute", 1 << 28, None)
            for pid in range(place, PROCESSES, len(INSTANCES))
        )
        busy = None if since is None else (number * 7919 + place * 104_729) % (5 * NS)
        uses.append(
            DeviceUse(device.uuid, when, since, processes, 9 << 30, 1 << 28, busy, None, 15 * NS)
        )
    uses += [
        DeviceUse(device.uuid, when, since, (), None, None, None, number * 1_700_003, 15 * NS)
        for device in GPUS
    ]
    return ProcessesSampled(tuple(uses))


_OWNERS = [
    PartialRef(uid=f"uid-{number}", container_id=f"{number:064x}") for number in range(PROCESSES)
]


def measured(made: Callable[[int], Event]) -> tuple[float, float]:
    """Return the shortest processor times of an event and of the snapshot after it, in ms."""
    join = Join()
    for source, event in known_events():
        join.apply(Envelope(source, source, 1, at(0), event))
    join.snapshot(at(0))
    applied, shown = [], []
    for number in range(SAMPLES):
        event = made(number)
        envelope = Envelope("gpus", "gpus", 1, at(5 * number + 0.01), event)
        start = time.process_time()
        join.apply(envelope)
        middle = time.process_time()
        join.snapshot(envelope.at)
        applied.append(middle - start)
        shown.append(time.process_time() - middle)
    return 1e3 * min(applied), 1e3 * min(shown)


def test_a_usage_sample_of_a_mig_node_against_a_round_of_readings() -> None:
    readings = every_field([*GPUS, *INSTANCES], plan=FieldPlan())

    def samples(number: int) -> SamplesTaken:
        when = at(5 * number)
        return SamplesTaken(tuple(one._replace(at=when) for one in readings))

    of_usage, of_readings = measured(usage_sample), measured(samples)
    print(
        f"\n{len(INSTANCES)} instances, {PROCESSES} processes        event, ms   snapshot, ms"
        f"\na usage sample    {of_usage[0]:20.2f} {of_usage[1]:14.2f}"
        f"\n{len(readings)} readings {of_readings[0]:25.2f} {of_readings[1]:14.2f}"
        f"\nratio {sum(of_usage) / sum(of_readings):.2f}"
    )
    assert sum(of_usage) < 9 * sum(of_readings)
