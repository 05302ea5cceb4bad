"""A look at who uses a node of 8 GPUs with 7 MIG instances each, against a round of its readings.

Both go through the join as the runtime has it: the event is applied, and a snapshot made.
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
LOOKS = 60


def subject(number: int) -> PartialRef:
    return PartialRef("ml", f"pod-{number}", "main", f"uid-{number}", f"{number:064x}")


def given_out() -> list[tuple[str, Event]]:
    """What is known of the node: a container on each instance, and many that hold none."""
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


def look(number: int) -> ProcessesSampled:
    """The n-th look, five seconds after the one before; the processes are of as many containers."""
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
    """Milliseconds of an event and of the snapshot after it, by this process's clock, at best."""
    join = Join()
    for source, event in given_out():
        join.apply(Envelope(source, source, 1, at(0), event))
    join.snapshot(at(0))
    applied, shown = [], []
    for number in range(LOOKS):
        event = made(number)
        envelope = Envelope("gpus", "gpus", 1, at(5 * number + 0.01), event)
        start = time.process_time()
        join.apply(envelope)
        middle = time.process_time()
        join.snapshot(envelope.at)
        applied.append(middle - start)
        shown.append(time.process_time() - middle)
    return 1e3 * min(applied), 1e3 * min(shown)


def test_a_look_at_a_mig_node() -> None:
    readings = every_field([*GPUS, *INSTANCES], plan=FieldPlan())

    def samples(number: int) -> SamplesTaken:
        when = at(5 * number)
        return SamplesTaken(tuple(one._replace(at=when) for one in readings))

    of_looks, of_samples = measured(look), measured(samples)
    print(
        f"\n{len(INSTANCES)} instances, {PROCESSES} processes        event, ms   snapshot, ms"
        f"\nwho used how much {of_looks[0]:20.2f} {of_looks[1]:14.2f}"
        f"\n{len(readings)} readings {of_samples[0]:25.2f} {of_samples[1]:14.2f}"
        f"\nratio {sum(of_looks) / sum(of_samples):.2f}"
    )
    assert sum(of_looks) < 9 * sum(of_samples)
