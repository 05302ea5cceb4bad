"""Whatever sources may say of a small node, and what it comes to in the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from pipeline.join.claim_resolution import ResolvedClaims
from pipeline.join.device_index import DeviceIndex
from pipeline.join.pod_identity import PodIdentities, ResolutionTime
from pipeline.model import (
    Claim,
    ClaimsReplaced,
    Device,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    Envelope,
    Event,
    Evidence,
    Holder,
    PartialRef,
    Pod,
    PodDeleted,
    PodsReplaced,
    PodUpserted,
    RawDeviceId,
    ResourcesAdvertised,
    SourceAdded,
)
from tests.pipeline.join.cluster import (
    GPUS,
    SOURCES,
    A,
    B,
    answered,
    container,
    filed,
    kept,
    listed,
    offer,
    pod,
    relist,
    said,
    whole,
)
from tests.support.nodes import Node, at, mig

T = TypeVar("T")

SLICE = mig(GPUS[1], 7)
S = SLICE.uuid
# Starts are whole seconds: so those that were told are told apart from those that the join noted.
MOMENTS = [second + 0.5 for second in range(100)]
SEATS = [[GPUS[0]], GPUS[:2], [*GPUS[:2], SLICE], [GPUS[1]]]
TABLE = [
    (RawDeviceId("dra", "gpu.nvidia.com/n/gpu-3"), A),
    (RawDeviceId("dra", "gpu.nvidia.com/n/mig"), S),
]
CONTAINERS = [
    (container(),),
    (container("init", "init"), container()),
    (container("init", "init", ended=True), container(started=7)),
    (container(started=3), container("side", "sidecar", started=4)),
    (container(ended=True), container("side")),
    (),
]
# The name is the first letter: `a2` is what `a1` was replaced by. `s1` is a static pod.
UIDS = ["a1", "a2", "a3", "b1", "b2", "c1", "s1"]
NAMES = "abcsx"
KNOWN = [*UIDS, "hash-s1", "x9"]
WHERE = ["main", "main", "main", "side", "init"]
STARTS = [None, 1, 20, 20, 60, 200]
SHARES = [None, None, 0.25, 0.5, 0.75, 1.0]
REAL = [A, B, S]
PLUGIN = [A, A, B, S, f"{A}::0", f"{A}::1", f"{A}-0", f"{B}-1", "nvidia3", "junk"]
VISIBLE = [A, B, S, "0", "1", "nvidia.com/gpu=0", "all"]


@dataclass
class World:
    """What each source says, in its order, each event at its own moment."""

    events: dict[str, list[tuple[float, Event]]]

    def envelopes(self) -> dict[str, list[Envelope]]:
        return {
            source: [Envelope(source, source, 1, at(when), event) for when, event in given_out]
            for source, given_out in self.events.items()
        }


class Author:
    """Makes a world up.

    Drawn by `random` and not piece by piece by hypothesis, which takes a hundred times as long;
    what hypothesis draws, and makes smaller when a test fails, are the seed and the size.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.rng = Random(seed)
        self.size = size

    def some(self, choices: Sequence[T], most: int = 2, least: int = 1) -> list[T]:
        return self.rng.choices(choices, k=self.rng.randint(least, most))

    def claims(self, source: str) -> list[Claim]:
        return [getattr(self, source)() for _ in range(self.rng.randint(0, self.size))]

    def kubelet(self) -> Claim:
        name, where = self.rng.choice(NAMES), self.rng.choice(WHERE)
        if self.rng.random() < 0.2:
            ref = PartialRef("ml", name, where)
            return said(Evidence.KUBELET_IDS, ref, [self.rng.choice(TABLE)[0].text], "dra")
        return listed(name, *self.some(PLUGIN), container=where)

    def checkpoint(self) -> Claim:
        uid, where = self.rng.choice(KNOWN), self.rng.choice(WHERE)
        if self.rng.random() < 0.5:
            return answered(uid, self.some(PLUGIN), *self.some(VISIBLE), container=where)
        return kept(uid, *self.some(PLUGIN), container=where)

    def podlist(self) -> Claim:
        where, share = self.rng.choice([*WHERE, ""]), self.rng.choice(SHARES)
        return filed(self.rng.choice(NAMES), *self.some(REAL), container=where, share=share)

    def runtime(self) -> Claim:
        uid, where = self.rng.choice(KNOWN), self.rng.choice(WHERE)
        evidence = self.rng.choice(
            [Evidence.RUNTIME_ENV, Evidence.RUNTIME_NODES, Evidence.RUNTIME_CDI]
        )
        ref = PartialRef("ml", uid[0], where, uid, self.rng.choice(["", "c1", "c2"]))
        return said(evidence, ref, self.some(VISIBLE), "visible")

    def pod(self, uid: str) -> Pod:
        ref = PartialRef("ml", uid[0], self.rng.choice(["", "", "main", "side"]), uid)
        held = said(
            Evidence.SCHEDULER_ANNOTATION,
            ref,
            self.some(REAL),
            "uuid",
            share=self.rng.choice(SHARES),
        )
        return pod(
            uid[0],
            *self.rng.choice(CONTAINERS),
            uid=uid,
            started=self.rng.choice(STARTS),
            ended=self.rng.random() < 0.2,
            static_uid="hash-s1" if uid == "s1" else "",
            claims=self.some([held], 1, 0),
        )

    def history(self) -> list[Event]:
        """What a source of pods tells: each uid once, and of two of a name one at a time."""
        events: list[Event] = []
        there: dict[str, Pod] = {}
        gone: set[str] = set()
        if self.rng.random() < 0.7:
            events.append(relist())
        for uid in self.some(UIDS, 3 * self.size, 0):
            if uid in gone:
                continue
            act = self.rng.choice(["put", "put", "put", "drop", "list"])
            new = self.pod(uid)
            if uid in there and there[uid].started is not None:
                new = replace(new, started=there[uid].started)
            for other in [other for other in there if other[0] == uid[0] and other != uid]:
                del there[other]
                gone.add(other)
                if act != "list":
                    events.append(PodDeleted(other))
            if act == "drop":
                there.pop(uid, None)
                gone.add(uid)
                events.append(PodDeleted(uid))
                continue
            there[uid] = new
            events.append(PodUpserted(new) if act == "put" else relist(*there.values()))
        return events

    def world(self) -> World:
        events: dict[str, list[Event]] = {
            "gpus": [DevicesDiscovered(tuple(devices)) for devices in self.some(SEATS)],
            "pods": self.history(),
            "slices": [
                DeviceAliasesReplaced(tuple(TABLE[:n])) for n in self.some([0, 1, 2], least=0)
            ],
            "kubelet": [offer(gpu=self.some(PLUGIN, 3)) for _ in range(self.rng.randint(0, 2))],
        }
        for source in CLAIMING:
            given_out = [
                whole(
                    *self.claims(source), complete=source == "kubelet" and self.rng.random() < 0.5
                )
                for _ in range(self.rng.randint(0, 2))
            ]
            events.setdefault(source, []).extend(given_out)
        return World(
            {
                source: list(zip(sorted(self.some(MOMENTS, n, n)), given_out, strict=True))
                for source, given_out in events.items()
                for n in [len(given_out)]
            }
        )


CLAIMING = ("kubelet", "checkpoint", "podlist", "runtime")
WORLDS = st.builds(lambda seed, size: Author(seed, size).world(), st.integers(0), st.integers(1, 4))


class Forgetful(PodIdentities):
    """Puts names and uids together by what is told now alone, and whenever that was told.

    What is remembered is for `test_identity_stories`: it hangs on when something was told.
    """

    def complete(
        self,
        heard: ResolvedClaims,
        devices: DeviceIndex,
        running: Iterable[tuple[tuple[str, str], str]],
        moment: ResolutionTime,
        *,
        complete: bool,
    ) -> None:
        now = moment._replace(confirmed_at=lambda _: None, previously_confirmed_at=lambda _: None)
        PodIdentities().complete(heard, devices, running, now, complete=complete)


def fresh() -> Node:
    """A node that has all sources, and has heard nothing."""
    node = Node()
    node.join._attributor._pod_identities = Forgetful()
    for order, source in enumerate([*SOURCES, "slices"]):
        node.say(SourceAdded(order), source, source)
    return node


def feed(node: Node, envelopes: Iterable[Envelope], *, look: bool = False) -> Node:
    for envelope in envelopes:
        node.join.apply(envelope)
        if look:
            node.snapshot()
    return node


def merged(world: World, rng: Random) -> list[Envelope]:
    """Any order that keeps that of each source."""
    left = {source: given_out for source, given_out in world.envelopes().items() if given_out}
    order = []
    while left:
        source = rng.choice(sorted(left))
        order.append(left[source].pop(0))
        if not left[source]:
            del left[source]
    return order


def shown(node: Node) -> dict[str, object]:
    """Everything that must not depend on the order of events."""
    snapshot = node.snapshot()
    return {
        "holders": {
            uuid: (on.present, [since_known(holder) for holder in on.holders], on.conflicts)
            for uuid, on in snapshot.layout.attributions.items()
        },
        "resources": snapshot.layout.resources,
        "unresolved": {name: state.unresolved for name, state in snapshot.sources.items()},
    }


def since_known(holder: Holder) -> tuple[object, ...]:
    """A holder, with its beginning if that was told and not noted when it was heard of."""
    given_out = holder.pod is not None and not holder.since_observed
    return (
        holder.subject,
        holder.share,
        holder.source,
        holder.evidence,
        holder.pod,
        holder.since if given_out else None,
    )


@dataclass
class Tables:
    """What it all comes to, kept in the plainest way."""

    devices: list[Device] = field(default_factory=list)
    ever: dict[str, Device] = field(default_factory=dict)
    aliases: dict[RawDeviceId, str] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    gone: dict[str, Pod] = field(default_factory=dict)
    taken_on: dict[str, float] = field(default_factory=dict)
    listed: bool = False
    listed_at: float = 0
    gone_at: dict[str, float] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    claims: dict[str, ClaimsReplaced] = field(default_factory=dict)
    offered: list[ResourcesAdvertised] = field(default_factory=list)
    published: list[DeviceAliasesReplaced] = field(default_factory=list)

    @classmethod
    def of(cls, world: World) -> "Tables":
        tables = cls()
        for source, given_out in world.events.items():
            for when, event in given_out:
                tables.take(source, when, event)
        return tables

    def take(self, source: str, when: float, event: Event) -> None:
        match event:
            case DevicesDiscovered(devices):
                self.devices = list(devices)
                self.ever.update({d.uuid: d for d in devices if d.mig is None})
            case DeviceAliasesReplaced(aliases):
                self.aliases = dict(aliases)
                self.published.append(event)
            case ClaimsReplaced():
                self.claims[source] = event
                self.confirmed[source] = when
            case ResourcesAdvertised():
                self.offered.append(event)
            case PodsReplaced(given_out):
                if not self.listed:
                    self.listed, self.listed_at = True, when
                for uid in set(self.pods) - {one.info.uid for one in given_out}:
                    self.drop(uid, when)
                for one in given_out:
                    self.put(one, when)
                self.confirmed[source] = when
            case PodUpserted(one):
                if self.listed:
                    self.put(one, when)
                self.confirmed[source] = when
            case PodDeleted(uid):
                if self.listed and uid in self.pods:
                    self.drop(uid, when)
                self.confirmed[source] = when
            case _:
                raise TypeError(event)

    def put(self, one: Pod, when: float) -> None:
        self.pods[one.info.uid] = one
        if one.started is not None:
            self.taken_on.setdefault(one.info.uid, when)

    def drop(self, uid: str, when: float) -> None:
        self.gone[uid] = self.pods.pop(uid)
        self.gone_at[uid] = when
        self.taken_on.pop(uid, None)

    def envelopes(self) -> list[Envelope]:
        """The shortest way to tell all this, to one who has heard nothing."""
        found: list[tuple[str, float, Event]] = []
        if self.ever or self.devices:
            found.append(("gpus", 0, DevicesDiscovered(tuple(self.ever.values()))))
            found.append(("gpus", 0, DevicesDiscovered(tuple(self.devices))))
        # Whatever was offered once by its own id is closed to schedulers.
        found += [("slices", 0, event) for event in self.published]
        found += [("kubelet", 0, event) for event in self.offered]
        if self.listed:
            end = self.confirmed["pods"]
            found.append(("pods", self.listed_at, relist(*self.gone.values())))
            found += [("pods", self.gone_at[uid], PodDeleted(uid)) for uid in self.gone]
            for uid, one in self.pods.items():
                found.append(("pods", self.taken_on.get(uid, end), PodUpserted(one)))
            found.append(("pods", end, relist(*self.pods.values())))
        for source, event in self.claims.items():
            found.append((source, self.confirmed[source], event))
        return [Envelope(source, source, 1, at(when), event) for source, when, event in found]
