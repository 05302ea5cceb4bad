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

from pipeline.join.arbitration import ArbitrationResult, Candidate, arbitrate
from pipeline.join.claim_resolution import (
    IdentifyContainer,
    PodKey,
    RawIds,
    ResolvedClaim,
    resolve_claims,
)
from pipeline.join.device_index import DeviceIndex
from pipeline.join.dra_devices import DraNameHistory
from pipeline.join.partial_claims import PodName
from pipeline.join.pod_evidence import PodClaims, select_claims
from pipeline.join.pod_identity import PodIdentities, ResolutionTime
from pipeline.join.reservations import resolve_shared
from pipeline.join.trust_rules import CONTAINER_RANK
from pipeline.model import Claim, Evidence, Instant


@dataclass(slots=True)
class Resolution:
    """What the claims come to.

    Attributes:
        single_gpu: the node has one GPU.
        pods: what stands of all that is said of each pod.
        candidates: by device uuid, who stands by a claim on it; devices that nobody claims are
            missing.
        arbitrations: by device uuid, who holds it.
        unresolved: by source, ids that fit no device; sources without any are missing.
        allocated: by extended resource, what the kubelet gave out.
        ineffective: by device uuid, claims without effect.
        access: by device uuid, what gives access without a holding.
        plugin_managed: devices that no scheduler gives out.
        possibly_held: GPUs that some container may hold which was given devices, and nobody knows
            which.
        has_unresolved_holder: there is such a container.
    """

    single_gpu: bool = False
    pods: dict[PodKey, PodClaims] = field(default_factory=dict)
    candidates: dict[str, list[Candidate]] = field(default_factory=dict)
    arbitrations: dict[str, ArbitrationResult] = field(default_factory=dict)
    unresolved: dict[str, RawIds] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    ineffective: dict[str, list[ResolvedClaim]] = field(default_factory=dict)
    access: dict[str, list[ResolvedClaim]] = field(default_factory=dict)
    plugin_managed: frozenset[str] = frozenset()
    possibly_held: frozenset[str] = frozenset()
    has_unresolved_holder: bool = False

    def add_admin_access(self, claims: Iterable[ResolvedClaim]) -> None:
        """Note access for monitoring."""
        for word in claims:
            for found in word.devices:
                self.access.setdefault(found.uuid, []).append(word)

    @property
    def has_env_access(self) -> bool:
        """Whether a variable or a mount gives a container access to a device it doesn't hold."""
        return any(
            word.evidence == Evidence.RUNTIME_ENV
            for words in self.access.values()
            for word in words
        )


def resolve(
    claims: Mapping[str, Iterable[Claim]],
    devices: DeviceIndex,
    identify: IdentifyContainer,
    *,
    pods: Iterable[tuple[PodName, str]] = (),
    complete: bool = False,
    plugin_managed: frozenset[str] = frozenset(),
    parents: Mapping[str, str] = MappingProxyType({}),
    numbered_schemes: frozenset[str] = frozenset(),
    pod_identities: PodIdentities | None = None,
    moment: ResolutionTime | None = None,
    previous: Resolution | None = None,
    dra_names: DraNameHistory | None = None,
) -> Resolution:
    """Apply the rule of this module.

    Args:
        claims: good claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
        identify: tells which container a claim is about.
        pods: names and uids of pods that the runtime has containers of.
        complete: all pods that hold something are named by some source.
        plugin_managed: devices that a device plugin or a DRA driver offers by their real ids; those
            that it gave out are added, and the GPUs of MIG instances.
        parents: of MIG instances, by their uuids.
        numbered_schemes: as for `resolve_claims`.
        pod_identities: which uid goes with which name, as far as that was seen before.
        moment: when, and what was told when; None where that makes no difference.
        previous: an earlier resolution; spares weighing anew what hasn't changed, no more.
        dra_names: what names of DRA drivers meant when they were given out.
    """
    heard = resolve_claims(
        claims, devices, identify, dra_names=dra_names, numbered_schemes=numbered_schemes
    )
    moment = moment or ResolutionTime(
        Instant(0, 0), _never_confirmed, _never_confirmed, claims.keys()
    )
    (pod_identities or PodIdentities()).complete(heard, devices, pods, moment, complete=complete)
    said: dict[PodKey, list[ResolvedClaim]] = {}
    reservations: list[ResolvedClaim] = []
    for word in heard.claims:
        if word.pod is not None and word.pod.reserves:
            reservations.append(word)
        else:
            said.setdefault(_pod_key(word), []).append(word)
    for word in resolve_shared(heard.shared_reservations, reservations):
        said.setdefault(_pod_key(word), []).append(word)
    plugin_managed |= _allocated_by_plugin(heard.claims)
    plugin_managed |= {parents[uuid] for uuid in plugin_managed if uuid in parents}
    resolution = Resolution(
        devices.single_gpu,
        unresolved=heard.unresolved,
        allocated=heard.allocated,
        plugin_managed=plugin_managed,
    )
    known = (
        previous
        if previous is not None and previous.single_gpu == devices.single_gpu
        else Resolution()
    )
    stakes = resolution.candidates
    for key, words in said.items():
        standing = known.pods.get(key)
        if (
            standing is None
            or standing.claims != words
            or standing.plugin_managed not in (None, plugin_managed)
        ):
            standing = select_claims(
                words, single_gpu=devices.single_gpu, plugin_managed=plugin_managed
            )
        resolution.pods[key] = standing
        for word in standing.unresolved_placeholders:
            _add_unresolved(word, heard.unresolved)
            # What counts for a scheduler means one of its GPUs.
            resolution.has_unresolved_holder = True
            resolution.possibly_held = (devices.gpus - plugin_managed) or devices.gpus
        for uuid, stake in standing.candidates:
            stakes.setdefault(uuid, []).append(stake)
        for uuid, word in standing.ineffective:
            resolution.ineffective.setdefault(uuid, []).append(word)
            if word.evidence == Evidence.RUNTIME_ENV:
                resolution.access.setdefault(uuid, []).append(word)
    resolution.add_admin_access(heard.admin_access)
    for uuid, on_it in stakes.items():
        denied = resolution.ineffective.get(uuid, [])
        same = known.candidates.get(uuid) == on_it and known.ineffective.get(uuid, []) == denied
        resolution.arbitrations[uuid] = (
            known.arbitrations[uuid] if same else arbitrate(on_it, denied)
        )
    vague = heard.ambiguous
    given = {
        uuid for uuid, on_it in stakes.items() if any(stake.allocated_whole for stake in on_it)
    }
    if vague and plugin_managed | given >= devices.gpus:
        # Then a scheduler has nothing to give out, and its annotation can't mean any of them.
        vague = [w for w in vague if w.evidence != Evidence.SCHEDULER_ANNOTATION or w.claim.vouched]
    if not all(_is_explained(word, resolution.pods) for word in vague):
        resolution.has_unresolved_holder = True
        resolution.possibly_held = devices.gpus
    return resolution


def _never_confirmed(_source: str) -> None:
    """Tell of no source when it said something."""


def _allocated_by_plugin(resolved_claims: Iterable[ResolvedClaim]) -> set[str]:
    """Return the devices that a device plugin or a DRA driver gave out by their real ids."""
    return {
        found.uuid
        for word in resolved_claims
        if word.evidence == Evidence.KUBELET_IDS
        and word.rank == CONTAINER_RANK[Evidence.KUBELET_IDS]
        for found in word.devices
        if not found.is_placeholder
    }


def _pod_key(resolved: ResolvedClaim) -> PodKey:
    return (resolved.subject.namespace, resolved.subject.pod, resolved.subject.uid)


def _is_explained(resolved: ResolvedClaim, pods: Mapping[PodKey, PodClaims]) -> bool:
    """Whether it is known otherwise what the container holds of which a vague word is."""
    mine = resolved.subject.container
    for pod, standing in pods.items():
        if _is_same_pod(pod, _pod_key(resolved)):
            held = {stake.subject.container for _, stake in standing.candidates}
            if held and (not mine or not held.isdisjoint({mine, ""})):
                return True
    return False


def _is_same_pod(one: PodKey, other: PodKey) -> bool:
    """Whether two pods are one, as far as is known of each."""
    if one[2] and other[2]:
        return one[2] == other[2]
    return one[1] != "" and one[:2] == other[:2]


def _add_unresolved(resolved: ResolvedClaim, unresolved: dict[str, RawIds]) -> None:
    """Count placeholders that nothing else explains as ids that fit no device."""
    strange = unresolved.setdefault(resolved.source, {})
    for raw in resolved.claim.devices:
        strange[raw.scheme, raw.text] = raw
