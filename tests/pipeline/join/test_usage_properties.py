"""What holds of the accounts whatever is told, and in whatever order its parts stand."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TypeVar

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
from tests.pipeline.join.cluster import GPUS, container, pod, ran, relist
from tests.pipeline.usage.looking import adds_up
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
    # Nobody tells its uid.
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
    """Makes up what is told of a small node, an event at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.counters: dict[str, int] = {}
        self.looked: dict[tuple[str, str], float] = {}

    def pick(self, *choices: T) -> T:
        return self.rng.choice(choices)

    def beginning(self) -> Iterator[Envelope]:
        """What is told first, after each start of podgpu."""
        self.looked.clear()
        yield self.given_out("gpus", SourceAdded(0))
        yield self.given_out("other", SourceAdded(1))
        yield self.given_out("gpus", DevicesDiscovered((*GPUS[:2], *INSTANCES)))
        yield self.given_out("runtime", ContainersReplaced((), 1000 * NS))

    def story(self, length: int) -> Iterator[Envelope]:
        yield from self.beginning()
        yield from self.continues(length)

    def continues(self, length: int) -> Iterator[Envelope]:
        for _ in range(length):
            self.now = round(self.now + self.rng.choice(PAUSES), 2)
            acts = [self.look, self.look, self.look, self.life, self.life, self.fate, self.errors]
            yield self.given_out(*self.rng.choice(acts)())

    def given_out(self, source: str, event: Event) -> Envelope:
        return Envelope(source, source, 1, at(self.now), event)

    def claim(self, subject: PartialRef) -> Claim:
        device = self.rng.choice([*GPUS[:2], *INSTANCES]).uuid
        made = ran("?", device, evidence=Evidence.RUNTIME_CDI)
        return replace(made, subject=subject, share=self.pick(None, None, 0.25, 1 / 3, 1.0))

    def life(self) -> tuple[str, Event]:
        subject = self.rng.choice(SUBJECTS)
        running = RunningContainer(
            subject, claims=tuple(self.claim(subject) for _ in range(self.rng.randint(0, 2)))
        )
        if self.rng.random() < 0.3:
            there = [pod("a", container(), uid=self.pick("a1", "a2")), pod("b", uid="b1")]
            return "pods", relist(*there[: self.rng.randint(0, 2)])
        given_out: list[Event] = [
            ContainerStarted(running),
            ContainerStarted(running),
            ContainerStopped(subject.container_id),
            ContainersReplaced((running,), 1000 * NS),
        ]
        return "runtime", self.rng.choice(given_out)

    def fate(self) -> tuple[str, Event]:
        self.counters.pop(self.pick(*GPUS).uuid, None)
        source = self.pick("gpus", "other")
        fates: list[tuple[str, Event]] = [
            ("", ClockTicked()),
            ("gpus", DevicesDiscovered(tuple(self.rng.choice(SHAPES)))),
            (source, SourceLost("away")),
            ("other", SourceRemoved()),
            ("runtime", SourceRemoved()),
            ("other", SourceAdded(self.pick(0, 2))),
        ]
        return self.rng.choice(fates)

    def errors(self) -> tuple[str, Event]:
        source = self.pick("gpus", "other", "kernel")
        return source, XidsReported(tuple(self.error(source) for _ in range(self.pick(0, 1, 3))))

    def error(self, source: str) -> XidReport:
        device = self.rng.choice([*GPUS[:2], *INSTANCES])
        names = ("", device.pci_bus_id) if source == "kernel" else (device.uuid, "")
        when = at(round(self.now - self.pick(-1, 0, 0, 0.5, 3, 40, 90), 2))
        pid = self.pick(None, 7)
        return XidReport(*names, self.pick(13, 31, 79), when, pid, "", self.rng.choice(OWNERS))

    def look(self) -> tuple[str, Event]:
        source = self.pick("gpus", "gpus", "other")
        devices = [*INSTANCES, *GPUS[:2]]
        uses = [self.use(source, d.uuid) for d in devices if self.rng.random() < 0.8]
        return source, ProcessesSampled(tuple(uses))

    def use(self, source: str, device: str) -> DeviceUse:
        rng, when = self.rng, round(self.now - self.pick(0, 0, 0.02, 2), 2)
        since: float | None = self.looked.get((source, device))
        if since is not None and rng.random() < 0.3:
            since = self.pick(None, since - 1, round((since + when) / 2, 2), when, when + 1)
        self.looked[source, device] = when
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


STORIES = st.tuples(st.integers(0, 1 << 40), st.integers(1, 60))
EXAMPLES = settings(max_examples=300, deadline=None)


def of_device(account: DeviceUsage) -> list[int]:
    """All that may grow and never falls."""
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


@given(STORIES)
@EXAMPLES
def test_every_sum_is_right_and_no_total_falls(story: tuple[int, int]) -> None:
    node = Node()
    accounts: dict[tuple[str, Instant], DeviceUsage] = {}
    containers: dict[object, list[int]] = {}
    for envelope in Author(story[0]).story(story[1]):
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
                    # What was kept apart while a part of its name was missing is its own.
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
    """A container that wasn't there has nothing of what was before it."""
    begin = before.at if before is not None else account.start
    assert one.start.mono_ns >= begin.mono_ns
    assert one.held_ns <= max(account.at.mono_ns - one.start.mono_ns, 0)
    for what in ("busy_ns", "energy_mj"):
        grown = (getattr(account, what) or 0) - (getattr(before, what, 0) or 0)
        assert (getattr(one, what) or 0) <= grown


@given(STORIES)
@example((64520, 30))  # two containers of a pod that had a uid alone until then
@EXAMPLES
def test_the_order_of_processes_and_containers_does_not_matter(story: tuple[int, int]) -> None:
    one, other = Node(), Node()
    chance = Random(story[0])
    for envelope in Author(story[0]).story(story[1]):
        one.join.apply(envelope)
        other.join.apply(replace(envelope, event=shuffled(envelope.event, chance)))
        found, again = (shown(node.join.snapshot(envelope.at).usage) for node in (one, other))
        assert found == again


def shuffled(event: Event, chance: Random) -> Event:
    def mixed(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(chance.sample(items, len(items)))

    match event:
        case ProcessesSampled(uses):
            return ProcessesSampled(
                tuple(replace(one, processes=mixed(one.processes)) for one in uses)
            )
        case ContainersReplaced():
            return replace(event, containers=mixed(event.containers))
        case _:
            return event


@given(STORIES)
@EXAMPLES
def test_sums_are_right_however_events_wait_for_each_other(story: tuple[int, int]) -> None:
    node, chance = Node(), Random(story[0])
    for envelope in Author(story[0]).story(story[1]):
        waits = chance.random() < 0.5
        node.join.apply(envelope, more_pending=waits)
        if not waits:
            for account in shown(node.join.snapshot(envelope.at).usage).values():
                adds_up(account)
