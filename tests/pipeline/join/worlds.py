"""Random reports of all sources of a small node, and the tables that result from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from pipeline.join.claim_resolution import ResolutionTime, ResolvedClaims
from pipeline.join.device_index import DeviceIndex
from pipeline.join.pod_identity import PodIdentities
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
    advertised,
    checkpoint_claim,
    claim_list,
    container,
    kubelet_claim,
    make_claim,
    plugin_answer,
    pod,
    pod_list,
    podlist_claim,
)
from tests.support.nodes import Node, at, mig

T = TypeVar("T")

SLICE = mig(GPUS[1], 7)
S = SLICE.uuid
# Pod starts are whole seconds. Times of events are not, so that the two can be distinguished.
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
# The first letter of a UID is the pod's name: `a2` replaced `a1`. `s1` is a static pod.
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
    """Events of each source in its order, each with its time."""

    events: dict[str, list[tuple[float, Event]]]

    def envelopes(self) -> dict[str, list[Envelope]]:
        return {
            source: [Envelope(source, source, 1, at(when), event) for when, event in events]
            for source, events in self.events.items()
        }


class Author:
    """Makes random worlds.

    `random` makes them because hypothesis would take a hundred times as long. Hypothesis draws the
    seed and the size, and reduces these when a test fails.
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
            return make_claim(Evidence.KUBELET_IDS, ref, [self.rng.choice(TABLE)[0].text], "dra")
        return kubelet_claim(name, *self.some(PLUGIN), container=where)

    def checkpoint(self) -> Claim:
        uid, where = self.rng.choice(KNOWN), self.rng.choice(WHERE)
        if self.rng.random() < 0.5:
            return plugin_answer(uid, self.some(PLUGIN), *self.some(VISIBLE), container=where)
        return checkpoint_claim(uid, *self.some(PLUGIN), container=where)

    def podlist(self) -> Claim:
        where, share = self.rng.choice([*WHERE, ""]), self.rng.choice(SHARES)
        return podlist_claim(self.rng.choice(NAMES), *self.some(REAL), container=where, share=share)

    def runtime(self) -> Claim:
        uid, where = self.rng.choice(KNOWN), self.rng.choice(WHERE)
        evidence = self.rng.choice(
            [Evidence.RUNTIME_ENV, Evidence.RUNTIME_NODES, Evidence.RUNTIME_CDI]
        )
        ref = PartialRef("ml", uid[0], where, uid, self.rng.choice(["", "c1", "c2"]))
        return make_claim(evidence, ref, self.some(VISIBLE), "visible")

    def pod(self, uid: str) -> Pod:
        ref = PartialRef("ml", uid[0], self.rng.choice(["", "", "main", "side"]), uid)
        held = make_claim(
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
        """Return events of a source of pods. No UID comes back; of one name, one pod at a time."""
        events: list[Event] = []
        present: dict[str, Pod] = {}
        gone: set[str] = set()
        if self.rng.random() < 0.7:
            events.append(pod_list())
        for uid in self.some(UIDS, 3 * self.size, 0):
            if uid in gone:
                continue
            act = self.rng.choice(["put", "put", "put", "drop", "list"])
            new = self.pod(uid)
            if uid in present and present[uid].started is not None:
                new = replace(new, started=present[uid].started)
            for other in [other for other in present if other[0] == uid[0] and other != uid]:
                del present[other]
                gone.add(other)
                if act != "list":
                    events.append(PodDeleted(other))
            if act == "drop":
                present.pop(uid, None)
                gone.add(uid)
                events.append(PodDeleted(uid))
                continue
            present[uid] = new
            events.append(PodUpserted(new) if act == "put" else pod_list(*present.values()))
        return events

    def world(self) -> World:
        events: dict[str, list[Event]] = {
            "gpus": [DevicesDiscovered(tuple(devices)) for devices in self.some(SEATS)],
            "pods": self.history(),
            "slices": [
                DeviceAliasesReplaced(tuple(TABLE[:n])) for n in self.some([0, 1, 2], least=0)
            ],
            "kubelet": [
                advertised(gpu=self.some(PLUGIN, 3)) for _ in range(self.rng.randint(0, 2))
            ],
        }
        for source in CLAIMING:
            reports = [
                claim_list(
                    *self.claims(source), complete=source == "kubelet" and self.rng.random() < 0.5
                )
                for _ in range(self.rng.randint(0, 2))
            ]
            events.setdefault(source, []).extend(reports)
        return World(
            {
                source: list(zip(sorted(self.some(MOMENTS, n, n)), reports, strict=True))
                for source, reports in events.items()
                for n in [len(reports)]
            }
        )


CLAIMING = ("kubelet", "checkpoint", "podlist", "runtime")
WORLDS = st.builds(lambda seed, size: Author(seed, size).world(), st.integers(0), st.integers(1, 4))


class Forgetful(PodIdentities):
    """Matches names and UIDs by the present reports only, at whatever time they were reported.

    What `PodIdentities` remembers depends on the time of each report (see `test_pod_identity.py`).
    """

    def complete(
        self,
        resolved: ResolvedClaims,
        devices: DeviceIndex,
        running: Iterable[tuple[tuple[str, str], str]],
        moment: ResolutionTime,
        *,
        complete: bool,
    ) -> None:
        now = moment._replace(confirmed_at=lambda _: None, previously_confirmed_at=lambda _: None)
        PodIdentities().complete(resolved, devices, running, now, complete=complete)


def fresh() -> Node:
    """Return a node that has all sources, none of which has reported."""
    node = Node()
    node.join._attributor._pod_identities = Forgetful()
    for order, source in enumerate([*SOURCES, "slices"]):
        node.say(SourceAdded(order), source, source)
    return node


def feed(node: Node, envelopes: Iterable[Envelope], *, snapshots: bool = False) -> Node:
    for envelope in envelopes:
        node.join.apply(envelope)
        if snapshots:
            node.snapshot()
    return node


def merged(world: World, rng: Random) -> list[Envelope]:
    """Return the events of all sources in a random order that keeps the order of each source."""
    left = {source: events for source, events in world.envelopes().items() if events}
    order = []
    while left:
        source = rng.choice(sorted(left))
        order.append(left[source].pop(0))
        if not left[source]:
            del left[source]
    return order


def shown(node: Node) -> dict[str, object]:
    """Return everything that must not depend on the order of events."""
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
    """Return a holder, with its start only if a source reported the start."""
    reported = holder.pod is not None and not holder.since_observed
    return (
        holder.subject,
        holder.share,
        holder.source,
        holder.evidence,
        holder.pod,
        holder.since if reported else None,
    )


@dataclass
class Tables:
    """The tables that result from a world, kept in the simplest way."""

    devices: list[Device] = field(default_factory=list)
    ever: dict[str, Device] = field(default_factory=dict)
    aliases: dict[RawDeviceId, str] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    gone: dict[str, Pod] = field(default_factory=dict)
    taken_on: dict[str, float] = field(default_factory=dict)
    pods_listed: bool = False
    listed_at: float = 0
    gone_at: dict[str, float] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    claims: dict[str, ClaimsReplaced] = field(default_factory=dict)
    offered: list[ResourcesAdvertised] = field(default_factory=list)
    published: list[DeviceAliasesReplaced] = field(default_factory=list)

    @classmethod
    def of(cls, world: World) -> "Tables":
        tables = cls()
        for source, events in world.events.items():
            for when, event in events:
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
            case PodsReplaced(pods):
                if not self.pods_listed:
                    self.pods_listed, self.listed_at = True, when
                for uid in set(self.pods) - {one.info.uid for one in pods}:
                    self.drop(uid, when)
                for one in pods:
                    self.put(one, when)
                self.confirmed[source] = when
            case PodUpserted(one):
                if self.pods_listed:
                    self.put(one, when)
                self.confirmed[source] = when
            case PodDeleted(uid):
                if self.pods_listed and uid in self.pods:
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
        """Return the fewest events that bring a new node into this state."""
        found: list[tuple[str, float, Event]] = []
        if self.ever or self.devices:
            found.append(("gpus", 0, DevicesDiscovered(tuple(self.ever.values()))))
            found.append(("gpus", 0, DevicesDiscovered(tuple(self.devices))))
        # A device that was offered under its real id stays closed to schedulers.
        found += [("slices", 0, event) for event in self.published]
        found += [("kubelet", 0, event) for event in self.offered]
        if self.pods_listed:
            end = self.confirmed["pods"]
            found.append(("pods", self.listed_at, pod_list(*self.gone.values())))
            found += [("pods", self.gone_at[uid], PodDeleted(uid)) for uid in self.gone]
            for uid, one in self.pods.items():
                found.append(("pods", self.taken_on.get(uid, end), PodUpserted(one)))
            found.append(("pods", end, pod_list(*self.pods.values())))
        for source, event in self.claims.items():
            found.append((source, self.confirmed[source], event))
        return [Envelope(source, source, 1, at(when), event) for source, when, event in found]
