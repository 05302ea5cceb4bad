"""Properties of accounts that hold for any events, and for any order of the parts of an event."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.model import (
    NS,
    Claim,
    ClockTicked,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    ContainerUsage,
    DevicesDiscovered,
    DeviceUsage,
    DeviceUse,
    Envelope,
    Event,
    Evidence,
    Instant,
    PartialRef,
    ProcessesSampled,
    ProcessUse,
    RunningContainer,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    Usage,
    XidReport,
    XidsReported,
)
from tests.pipeline.join.cluster import GPUS, container, pod, pod_list, runtime_claim
from tests.pipeline.usage.samples import adds_up
from tests.support.examples import examples
from tests.support.nodes import Node, at, mig

T = TypeVar("T")

INSTANCES = [mig(GPUS[1], 1), mig(GPUS[1], 2, profile="3g.40gb")]
SHAPES = [GPUS[:2], GPUS[:2], [*GPUS[:2], *INSTANCES], [*GPUS[:2], INSTANCES[0]], GPUS[:1]]
# Two pods of one name, and one of two containers.
SUBJECTS = [
    PartialRef("ml", "a", "main", "a1", "1"),
    PartialRef("ml", "a", "main", "a2", "2"),
    PartialRef("ml", "b", "main", "b1", "3"),
    PartialRef("ml", "b", "side", "b1", "4"),
    # A pod of unknown UID.
    PartialRef("ml", "n", "main", "", "5"),
]
OWNERS = [
    *(PartialRef(uid=one.uid, container_id=one.container_id) for one in SUBJECTS if one.uid),
    PartialRef(uid="x1", container_id="9"),
    PartialRef(container_id="8"),
    PartialRef(),
    None,
]
PAUSES = [0, 0.01, 0.3, 1, 1, 5, 5, 5, 20, 200, 400]


class Author:
    """Makes random events of a small node, one at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.counters: dict[str, int] = {}
        self.sampled: dict[tuple[str, str], float] = {}

    def pick(self, *choices: T) -> T:
        return self.rng.choice(choices)

    def initial_events(self) -> Iterator[Envelope]:
        """Yield the events after each start of podgpu."""
        self.sampled.clear()
        yield self.envelope("gpus", SourceAdded(0))
        yield self.envelope("other", SourceAdded(1))
        yield self.envelope("gpus", DevicesDiscovered((*GPUS[:2], *INSTANCES)))
        yield self.envelope("runtime", ContainersReplaced((), 1000 * NS))

    def history(self, length: int) -> Iterator[Envelope]:
        yield from self.initial_events()
        yield from self.more_events(length)

    def more_events(self, length: int) -> Iterator[Envelope]:
        for _ in range(length):
            self.now = round(self.now + self.rng.choice(PAUSES), 2)
            acts = [
                self.sample,
                self.sample,
                self.sample,
                self.containers,
                self.containers,
                self.sources,
                self.errors,
            ]
            yield self.envelope(*self.rng.choice(acts)())

    def envelope(self, source: str, event: Event) -> Envelope:
        return Envelope(source, source, 1, at(self.now), event)

    def claim(self, subject: PartialRef) -> Claim:
        device = self.rng.choice([*GPUS[:2], *INSTANCES]).uuid
        made = runtime_claim("?", device, evidence=Evidence.RUNTIME_CDI)
        return replace(made, subject=subject, share=self.pick(None, None, 0.25, 1 / 3, 1.0))

    def containers(self) -> tuple[str, Event]:
        subject = self.rng.choice(SUBJECTS)
        running = RunningContainer(
            subject, claims=tuple(self.claim(subject) for _ in range(self.rng.randint(0, 2)))
        )
        if self.rng.random() < 0.3:
            present = [pod("a", container(), uid=self.pick("a1", "a2")), pod("b", uid="b1")]
            return "pods", pod_list(*present[: self.rng.randint(0, 2)])
        events: list[Event] = [
            ContainerStarted(running),
            ContainerStarted(running),
            ContainerStopped(subject.container_id),
            ContainersReplaced((running,), 1000 * NS),
        ]
        return "runtime", self.rng.choice(events)

    def sources(self) -> tuple[str, Event]:
        self.counters.pop(self.pick(*GPUS).uuid, None)
        source = self.pick("gpus", "other")
        events: list[tuple[str, Event]] = [
            ("", ClockTicked()),
            ("gpus", DevicesDiscovered(tuple(self.rng.choice(SHAPES)))),
            (source, SourceLost("away")),
            ("other", SourceRemoved()),
            ("runtime", SourceRemoved()),
            ("other", SourceAdded(self.pick(0, 2))),
        ]
        return self.rng.choice(events)

    def errors(self) -> tuple[str, Event]:
        source = self.pick("gpus", "other", "kernel")
        return source, XidsReported(tuple(self.error(source) for _ in range(self.pick(0, 1, 3))))

    def error(self, source: str) -> XidReport:
        device = self.rng.choice([*GPUS[:2], *INSTANCES])
        names = ("", device.pci_bus_id) if source == "kernel" else (device.uuid, "")
        when = at(round(self.now - self.pick(-1, 0, 0, 0.5, 3, 40, 90), 2))
        pid = self.pick(None, 7)
        return XidReport(*names, self.pick(13, 31, 79), when, pid, "", self.rng.choice(OWNERS))

    def sample(self) -> tuple[str, Event]:
        source = self.pick("gpus", "gpus", "other")
        devices = [*INSTANCES, *GPUS[:2]]
        uses = [self.use(source, d.uuid) for d in devices if self.rng.random() < 0.8]
        return source, ProcessesSampled(tuple(uses))

    def use(self, source: str, device: str) -> DeviceUse:
        rng, when = self.rng, round(self.now - self.pick(0, 0, 0.02, 2), 2)
        since: float | None = self.sampled.get((source, device))
        if since is not None and rng.random() < 0.3:
            since = self.pick(None, since - 1, round((since + when) / 2, 2), when, when + 1)
        self.sampled[source, device] = when
        by_process = not device.startswith("MIG")
        processes = tuple(
            ProcessUse(
                number,
                number,
                rng.choice(OWNERS),
                self.pick("compute", "compute", "mps", ""),
                self.pick(None, 0, rng.randint(0, 1 << 33)),
                self.pick(None, 0, rng.randint(0, NS)) if by_process else None,
            )
            for number in range(rng.randint(0, 3))
        )
        busy: int | None = sum(one.busy_ns or 0 for one in processes)
        if since is None or rng.random() < 0.2:
            busy = None
        elif not by_process:
            busy = self.pick(0, rng.randint(0, NS))
        counter = self.counters.get(device, 0) + self.pick(0, rng.randint(0, 5_000_000))
        self.counters[device] = counter
        return DeviceUse(
            device,
            at(when),
            None if since is None else at(since),
            processes,
            self.pick(None, rng.randint(0, 1 << 34), 80 << 30),
            self.pick(None, 0, 1 << 29),
            busy,
            self.pick(None, counter, counter, counter) if by_process else None,
            self.pick(1, 15, 600) * NS,
            rng.random() < 0.9,
            rng.random() < 0.2,
        )


HISTORIES = st.tuples(st.integers(0, 1 << 40), st.integers(1, 60))
EXAMPLES = settings(max_examples=examples(300), deadline=None)


def of_device(account: DeviceUsage) -> list[int]:
    """Return all values that never decrease."""
    return [
        account.elapsed_ns,
        account.unheld_ns,
        account.busy_ns or 0,
        account.busy_unattributed_ns or 0,
        account.energy_mj or 0,
        account.energy_unattributed_mj or 0,
        account.forgotten_busy_ns,
        account.forgotten_held_ns,
        account.forgotten_energy_mj,
        account.at.mono_ns,
    ]


def of_container(one: ContainerUsage) -> list[int]:
    return [one.held_ns, one.busy_ns or 0, one.energy_mj or 0]


def shown(usage: Usage | None) -> dict[tuple[str, Instant], DeviceUsage]:
    devices = usage.devices if usage is not None else {}
    return {(uuid, account.start): account for uuid, account in devices.items()}


@pytest.mark.slow
@given(HISTORIES)
@EXAMPLES
def test_every_sum_is_exact_and_no_total_decreases(history: tuple[int, int]) -> None:
    node = Node()
    accounts: dict[tuple[str, Instant], DeviceUsage] = {}
    containers: dict[object, list[int]] = {}
    for envelope in Author(history[0]).history(history[1]):
        node.join.apply(envelope)
        snapshot = node.join.snapshot(envelope.at)
        found = shown(snapshot.usage)
        assert {uuid for uuid, _ in found} <= set(snapshot.layout.attributions)
        for key, account in found.items():
            adds_up(account)
            before = accounts.get(key)
            assert_grown(of_device(before) if before else [], of_device(account))
            for one in account.containers:
                ids = [(*key, each) for each in (one.id, *one.absorbed)]
                known = [containers[each] for each in ids if each in containers]
                if known:
                    # Accounts that were separate while the name was incomplete are merged.
                    assert_grown(
                        [sum(parts) for parts in zip(*known, strict=True)], of_container(one)
                    )
                else:
                    assert_new(one, account, before)
                for each in ids:
                    containers.pop(each, None)
                containers[ids[0]] = of_container(one)
        accounts.update(found)


def assert_grown(before: list[int], after: list[int]) -> None:
    assert all(b <= a for b, a in zip(before, after, strict=False)), (before, after)


def assert_new(one: ContainerUsage, account: DeviceUsage, before: DeviceUsage | None) -> None:
    """Check that a new container has nothing of what was counted before it."""
    start = before.at if before is not None else account.start
    assert one.start.mono_ns >= start.mono_ns
    assert one.held_ns <= max(account.at.mono_ns - one.start.mono_ns, 0)
    for what in ("busy_ns", "energy_mj"):
        grown = (getattr(account, what) or 0) - (getattr(before, what, 0) or 0)
        assert (getattr(one, what) or 0) <= grown


@pytest.mark.slow
@given(HISTORIES)
@example((64520, 30))  # two containers of a pod of which only the UID was known until then
@EXAMPLES
def test_the_order_of_processes_and_containers_does_not_matter(history: tuple[int, int]) -> None:
    one, other = Node(), Node()
    rng = Random(history[0])
    for envelope in Author(history[0]).history(history[1]):
        one.join.apply(envelope)
        other.join.apply(replace(envelope, event=shuffled(envelope.event, rng)))
        found, again = (shown(node.join.snapshot(envelope.at).usage) for node in (one, other))
        assert found == again


def shuffled(event: Event, rng: Random) -> Event:
    def mixed(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(rng.sample(items, len(items)))

    match event:
        case ProcessesSampled(uses):
            return ProcessesSampled(
                tuple(replace(one, processes=mixed(one.processes)) for one in uses)
            )
        case ContainersReplaced():
            return replace(event, containers=mixed(event.containers))
        case _:
            return event


@pytest.mark.slow
@given(HISTORIES)
@EXAMPLES
def test_sums_are_exact_when_events_are_pending(history: tuple[int, int]) -> None:
    node, rng = Node(), Random(history[0])
    for envelope in Author(history[0]).history(history[1]):
        waits = rng.random() < 0.5
        node.join.apply(envelope, more_pending=waits)
        if not waits:
            for account in shown(node.join.snapshot(envelope.at).usage).values():
                adds_up(account)
