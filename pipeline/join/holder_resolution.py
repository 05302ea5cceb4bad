"""The rule that turns the claims of all sources into holders of devices.

1. These claims have no effect: a claim that has expired, that names no device of this node, or
   with a pod that has ended or is gone; a claim with only a pod name, if the kubelet had not
   admitted the pod of that name when the claim was confirmed; a claim with only a pod uid, if a
   source of pods does not know the uid, or if a source that names all holders has no name for it.
   (Claims of the container runtime about its containers need no pod.)
2. Of all claims about one container, those with the strongest evidence are valid (`trust_rules`);
   the others are overruled. The response of a device plugin replaces the ids that were requested
   from it, but not those of another resource. A claim about a pod as a whole is compared with the
   claims about its containers.
3. Real ids of the same container or pod have precedence over placeholders. Without real ids, a
   placeholder holds a device only on a node with one GPU. If a container has only placeholders or
   ids that match no device, and no other claim shows what it holds, it may hold any GPU, so that no
   GPU is known to be free. This does not apply to an id with a uuid or PCI address, to an
   environment variable, or to an annotation with a number or a uuid that no GPU of the node has. A
   placeholder never means a device that a device plugin allocates under its real id.
4. Several pods hold a device together if each has a part of it: a share below 1 or, without known
   shares, a replica. Otherwise the pods with the strongest evidence hold it, and the others are
   overruled. Environment variables are the weakest evidence, since any user can set them.
5. If one of these pods has the whole device, by allocation of the kubelet or by its share, then the
   pod that started last holds it. If a start is unknown, or two are equal, all pods are shown as a
   conflict. If all holders have a part, so do the other pods that have only a part.
6. A container that has ended does not hold a device that another container of its pod still has.
7. Shares that sum to more than 1 are not shown, and are a conflict of all holders. So are shares
   that sum to 1 while another pod holds a part as well; these are shown.
8. If several sources have claims about one container with equal evidence, the source that is
   earlier in the configuration is shown. Between pods the best rank of these claims counts.

The result depends on the content of the tables, not on the order in which events arrived.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.join.arbitration import ArbitrationResult, Candidate, arbitrate
from pipeline.join.claim_resolution import (
    IdentifyContainer,
    PodKey,
    ResolutionTime,
    ResolvedClaim,
    resolve_claims,
)
from pipeline.join.device_index import DeviceIndex, RawIds
from pipeline.join.dra_name_history import DraNameHistory
from pipeline.join.incomplete_pod_identity import PodName
from pipeline.join.pod_evidence import PodClaims, select_claims
from pipeline.join.pod_identity import PodIdentities
from pipeline.join.reservations import resolve_shared
from pipeline.model import Claim, Evidence


@dataclass(slots=True)
class Resolution:
    """Result of resolving all claims.

    Attributes:
        single_gpu: whether the node has one GPU.
        pods: the valid claims of each pod.
        candidates: the candidates by device uuid; only devices that have any.
        arbitrations: holders and conflicts by device uuid; only devices with candidates.
        unresolved: device ids that match no device, by source; only sources that have such ids.
        allocated: uuids and ids that the kubelet allocated, by extended resource.
        ineffective: claims without effect on a device, by device uuid.
        access: claims that give access to a device and do not hold it, by device uuid.
        plugin_managed: devices that no scheduler allocates.
        possibly_held: GPUs that may be held by a container for which it is unknown which devices it
            was given.
        has_unresolved_holder: whether there is such a container.
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

    @property
    def has_env_access(self) -> bool:
        """Whether a container has access by a variable or a mount to a device it does not hold."""
        return any(
            claim.evidence == Evidence.RUNTIME_ENV
            for claims in self.access.values()
            for claim in claims
        )


def resolve(
    claims: Mapping[str, Iterable[Claim]],
    devices: DeviceIndex,
    identify: IdentifyContainer,
    *,
    pod_identities: PodIdentities,
    dra_names: DraNameHistory,
    moment: ResolutionTime,
    pods: Iterable[tuple[PodName, str]] = (),
    complete: bool = False,
    plugin_managed: frozenset[str] = frozenset(),
    previous: Resolution | None = None,
) -> Resolution:
    """Resolve all claims to holders, by the rule of this module.

    Args:
        claims: valid claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
        identify: returns the container that a claim means.
        pods: names and uids of the pods of the runtime's containers.
        complete: whether a source names all pods that hold devices.
        plugin_managed: devices that a device plugin or a DRA driver offers under their real ids.
            Devices that it allocated are added, and the GPUs of such MIG instances.
        pod_identities: the names and uids of pods that were seen before.
        moment: the time, and when sources confirmed their claims.
        previous: an earlier resolution. Its unchanged parts are reused; the result does not depend
            on it.
        dra_names: the devices that names of DRA drivers meant when they were allocated.
    """
    resolved = resolve_claims(claims, devices, identify, dra_names)
    pod_identities.complete(resolved, devices, pods, moment, complete=complete)
    claims_by_pod: dict[PodKey, list[ResolvedClaim]] = {}
    reservations: list[ResolvedClaim] = []
    for claim in resolved.claims:
        if claim.pod is not None and claim.pod.reserves:
            reservations.append(claim)
        else:
            claims_by_pod.setdefault(claim.pod_key, []).append(claim)
    for claim in resolve_shared(resolved.shared_reservations, reservations):
        claims_by_pod.setdefault(claim.pod_key, []).append(claim)
    plugin_managed |= _allocated_by_plugin(resolved.claims)
    plugin_managed |= {devices.parents[uuid] for uuid in plugin_managed if uuid in devices.parents}
    resolution = Resolution(
        devices.single_gpu,
        unresolved=resolved.unresolved,
        allocated=resolved.allocated,
        plugin_managed=plugin_managed,
    )
    reusable = (
        previous
        if previous is not None and previous.single_gpu == devices.single_gpu
        else Resolution()
    )
    candidates = resolution.candidates
    for key, claims_of_pod in claims_by_pod.items():
        pod_claims = reusable.pods.get(key)
        if (
            pod_claims is None
            or pod_claims.claims != claims_of_pod
            or pod_claims.plugin_managed not in (None, plugin_managed)
        ):
            pod_claims = select_claims(
                claims_of_pod, single_gpu=devices.single_gpu, plugin_managed=plugin_managed
            )
        resolution.pods[key] = pod_claims
        for claim in pod_claims.unresolved_placeholders:
            unresolved = resolved.unresolved.setdefault(claim.source, {})
            unresolved.update({(raw.scheme, raw.text): raw for raw in claim.claim.devices})
            # A placeholder means one of the GPUs that a scheduler allocates.
            resolution.has_unresolved_holder = True
            resolution.possibly_held = (devices.gpus - plugin_managed) or devices.gpus
        for uuid, candidate in pod_claims.candidates:
            candidates.setdefault(uuid, []).append(candidate)
        for uuid, claim in pod_claims.ineffective:
            resolution.ineffective.setdefault(uuid, []).append(claim)
            if claim.evidence == Evidence.RUNTIME_ENV:
                resolution.access.setdefault(uuid, []).append(claim)
    for claim in resolved.admin_access:
        for found in claim.devices:
            resolution.access.setdefault(found.uuid, []).append(claim)
    for uuid, device_candidates in candidates.items():
        ineffective = resolution.ineffective.get(uuid, [])
        is_unchanged = (
            reusable.candidates.get(uuid) == device_candidates
            and reusable.ineffective.get(uuid, []) == ineffective
        )
        resolution.arbitrations[uuid] = (
            reusable.arbitrations[uuid]
            if is_unchanged
            else arbitrate(device_candidates, ineffective)
        )
    allocated_whole = {
        uuid
        for uuid, device_candidates in candidates.items()
        if any(candidate.allocated_whole for candidate in device_candidates)
    }
    # If no GPU is left for a scheduler, its annotation cannot mean any of them.
    none_left = plugin_managed | allocated_whole >= devices.gpus
    if any(
        not (none_left and claim.evidence == Evidence.SCHEDULER_ANNOTATION) or claim.claim.vouched
        for claim in resolved.ambiguous
        if not _is_explained(claim, resolution.pods)
    ):
        resolution.has_unresolved_holder = True
        resolution.possibly_held = devices.gpus
    return resolution


def _allocated_by_plugin(resolved_claims: Iterable[ResolvedClaim]) -> set[str]:
    """Return the devices that a device plugin or a DRA driver allocated under their real ids."""
    return {
        found.uuid
        for claim in resolved_claims
        if claim.evidence == Evidence.KUBELET_IDS
        for found in claim.devices
        if not found.is_placeholder
    }


def _is_explained(resolved: ResolvedClaim, pods: Mapping[PodKey, PodClaims]) -> bool:
    """Whether another claim shows what the container of an ambiguous claim holds."""
    container = resolved.subject.container
    for pod, pod_claims in pods.items():
        if _is_same_pod(pod, resolved.pod_key):
            containers = {
                candidate.claim.subject.container for _, candidate in pod_claims.candidates
            }
            if containers and (not container or not containers.isdisjoint({container, ""})):
                return True
    return False


def _is_same_pod(one: PodKey, other: PodKey) -> bool:
    """Whether two pods are the same, by uid, or by name where a uid is unknown."""
    if one[2] and other[2]:
        return one[2] == other[2]
    return one[1] != "" and one[:2] == other[:2]
