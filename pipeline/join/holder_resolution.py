"""One rule that turns the claims of all sources into holders.

1. A claim that is no longer good, that names no device of this node, or whose pod has ended or is
   gone, holds nothing; nor does one that knows its pod by name alone, if the kubelet hadn't taken
   on the pod of that name when the claim was made; nor one that knows its pod by uid alone, where a
   source that tells of pods doesn't know the uid, or one that names all holders has no name for it.
   (What the runtime says of its own containers needs no pod.)
2. Of what is said of one container, the strongest evidence stands (`Evidence`) and all else is
   overruled; what a device plugin answered overrules what it was asked for, and nothing that was
   asked for as another resource. What is said of a pod as a whole is weighed against what is said
   of its containers.
3. Placeholders yield to real ids of the same container or pod. Alone, they hold a device only where
   the node has just one GPU, so that there is no mistaking which. Where the ids of a container are
   placeholders or fit no device, and nothing else tells what it holds, it may hold any of the
   GPUs, and so it isn't known of any that it is free; but not by an id that names a device of its
   own, by uuid or PCI address, nor by the environment, nor by an annotation with a number or a
   uuid that no GPU of the node has. A placeholder means none that a device plugin gives out.
4. Of several pods on one device, all hold it if each has a part of it: a fraction or, where nobody
   says how much, a replica. Otherwise one that has nothing to show but its environment, which
   anybody can set, yields to those that were given devices; then those with the strongest evidence
   hold it, and the others are overruled.
5. Of those, if the kubelet gave the device to one of them alone, or one has all of it, the pod that
   started last holds it; if any start is unknown, or two are the same, all are shown, as a
   conflict. Where all that hold it have a part, so do the others that have but a part.
6. A container that has ended yields to those of its pod that go on with the device.
7. Shares that come to more than a whole are not believed, and are a conflict of all that hold it.
   So are shares that come to a whole where another pod holds some of it, too.
8. Where one container is named by several sources on equal evidence, the one that is earlier in the
   configuration has the word; between pods the best of their ranks counts.

The result depends on what the sources' tables say, not on the order in which they were heard.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pipeline.join.arbitration import Stake, Verdict, weigh
from pipeline.join.claim_resolution import Identify, PodKey, RawIds, Word, hear
from pipeline.join.device_index import DeviceIndex
from pipeline.join.dra_devices import ClaimedDevices
from pipeline.join.partial_claims import Place
from pipeline.join.pod_evidence import Standing, sift
from pipeline.join.pod_identity import Moment, Pairs
from pipeline.join.reservations import share
from pipeline.join.trust_rules import IN_CONTAINER
from pipeline.model import Claim, Evidence, Instant


@dataclass(slots=True)
class Resolution:
    """What the claims come to.

    Attributes:
        lone: the node has one GPU.
        pods: what stands of all that is said of each pod.
        stakes: by device uuid, who stands by a claim on it; devices that nobody claims are missing.
        verdicts: by device uuid, who holds it.
        unresolved: by source, ids that fit no device; sources without any are missing.
        allocated: by extended resource, what the kubelet gave out.
        denied: by device uuid, claims without effect.
        access: by device uuid, what gives access without a holding.
        closed: devices that no scheduler gives out.
        unknown: GPUs that some container may hold which was given devices, and nobody knows which.
        blind: there is such a container.
    """

    lone: bool = False
    pods: dict[PodKey, Standing] = field(default_factory=dict)
    stakes: dict[str, list[Stake]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    unresolved: dict[str, RawIds] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    denied: dict[str, list[Word]] = field(default_factory=dict)
    access: dict[str, list[Word]] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    blind: bool = False

    def let_watch(self, words: Iterable[Word]) -> None:
        """Note access for monitoring."""
        for word in words:
            for found in word.found:
                self.access.setdefault(found.uuid, []).append(word)

    @property
    def accessed(self) -> bool:
        """Whether a variable or a mount gives a container access to a device it doesn't hold."""
        return any(
            word.evidence == Evidence.RUNTIME_ENV
            for words in self.access.values()
            for word in words
        )


def resolve(
    claims: Mapping[str, Iterable[Claim]],
    devices: DeviceIndex,
    identify: Identify,
    *,
    pods: Iterable[tuple[Place, str]] = (),
    complete: bool = False,
    closed: frozenset[str] = frozenset(),
    parents: Mapping[str, str] = MappingProxyType({}),
    numbered: frozenset[str] = frozenset(),
    pairs: Pairs | None = None,
    moment: Moment | None = None,
    before: Resolution | None = None,
    claimed: ClaimedDevices | None = None,
) -> Resolution:
    """Apply the rule of this module.

    Args:
        claims: good claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
        identify: tells which container a claim is about.
        pods: names and uids of pods that the runtime has containers of.
        complete: all pods that hold something are named by some source.
        closed: devices that a device plugin or a DRA driver offers by their real ids; those that it
            gave out are added, and the GPUs of MIG instances.
        parents: of MIG instances, by their uuids.
        numbered: as for `hear`.
        pairs: which uid goes with which name, as far as that was seen before.
        moment: when, and what was told when; None where that makes no difference.
        before: an earlier resolution; spares weighing anew what hasn't changed, no more.
        claimed: what names of DRA drivers meant when they were given out.
    """
    heard = hear(claims, devices, identify, claimed=claimed, numbered=numbered)
    moment = moment or Moment(Instant(0, 0), _untold, _untold, claims.keys())
    (pairs or Pairs()).name(heard, devices, pods, moment, complete=complete)
    said: dict[PodKey, list[Word]] = {}
    reservations: list[Word] = []
    for word in heard.words:
        if word.pod is not None and word.pod.reserves:
            reservations.append(word)
        else:
            said.setdefault(_pod(word), []).append(word)
    for word in share(heard.sharing, reservations):
        said.setdefault(_pod(word), []).append(word)
    closed |= _given_out(heard.words)
    closed |= {parents[uuid] for uuid in closed if uuid in parents}
    resolution = Resolution(
        devices.lone, unresolved=heard.unresolved, allocated=heard.allocated, closed=closed
    )
    known = before if before is not None and before.lone == devices.lone else Resolution()
    stakes = resolution.stakes
    for key, words in said.items():
        standing = known.pods.get(key)
        if standing is None or standing.words != words or standing.closed not in (None, closed):
            standing = sift(words, lone=devices.lone, closed=closed)
        resolution.pods[key] = standing
        for word in standing.unexplained:
            _give_up(word, heard.unresolved)
            # What counts for a scheduler means one of its GPUs.
            resolution.blind = True
            resolution.unknown = (devices.gpus - closed) or devices.gpus
        for uuid, stake in standing.stakes:
            stakes.setdefault(uuid, []).append(stake)
        for uuid, word in standing.denied:
            resolution.denied.setdefault(uuid, []).append(word)
            if word.evidence == Evidence.RUNTIME_ENV:
                resolution.access.setdefault(uuid, []).append(word)
    resolution.let_watch(heard.admin)
    for uuid, on_it in stakes.items():
        denied = resolution.denied.get(uuid, [])
        same = known.stakes.get(uuid) == on_it and known.denied.get(uuid, []) == denied
        resolution.verdicts[uuid] = known.verdicts[uuid] if same else weigh(on_it, denied)
    vague = heard.vague
    given = {uuid for uuid, on_it in stakes.items() if any(stake.given for stake in on_it)}
    if vague and closed | given >= devices.gpus:
        # Then a scheduler has nothing to give out, and its annotation can't mean any of them.
        vague = [w for w in vague if w.evidence != Evidence.SCHEDULER_ANNOTATION or w.claim.vouched]
    if not all(_explained(word, resolution.pods) for word in vague):
        resolution.blind = True
        resolution.unknown = devices.gpus
    return resolution


def _untold(_source: str) -> None:
    """Tell of no source when it said something."""


def _given_out(words: Iterable[Word]) -> set[str]:
    """Return the devices that a device plugin or a DRA driver gave out by their real ids."""
    return {
        found.uuid
        for word in words
        if word.evidence == Evidence.KUBELET_IDS and word.rank == IN_CONTAINER[Evidence.KUBELET_IDS]
        for found in word.found
        if not found.placeholder
    }


def _pod(word: Word) -> PodKey:
    return (word.subject.namespace, word.subject.pod, word.subject.uid)


def _explained(word: Word, pods: Mapping[PodKey, Standing]) -> bool:
    """Whether it is known otherwise what the container holds of which a vague word is."""
    mine = word.subject.container
    for pod, standing in pods.items():
        if _same(pod, _pod(word)):
            held = {stake.subject.container for _, stake in standing.stakes}
            if held and (not mine or not held.isdisjoint({mine, ""})):
                return True
    return False


def _same(one: PodKey, other: PodKey) -> bool:
    """Whether two pods are one, as far as is known of each."""
    if one[2] and other[2]:
        return one[2] == other[2]
    return one[1] != "" and one[:2] == other[:2]


def _give_up(word: Word, unresolved: dict[str, RawIds]) -> None:
    """Count placeholders that nothing else explains as ids that fit no device."""
    strange = unresolved.setdefault(word.source, {})
    for raw in word.claim.devices:
        strange[raw.scheme, raw.text] = raw
