"""Selects which claims about one pod are valid, by the strength of their evidence."""

from typing import Final, NamedTuple

from pipeline.join.arbitration import Candidate
from pipeline.join.claim_resolution import ResolvedClaim
from pipeline.join.device_index import ResolvedDevice
from pipeline.join.trust_rules import CONTAINER_RANK, POD_RANK, USER_CONTROLLED
from pipeline.model import ClaimedDevice, Evidence


class PodClaims(NamedTuple):
    """The claims about one pod, and the candidates that result.

    Attributes:
        claims: all claims about the pod.
        candidates: pairs of a device uuid and a candidate, one for each device of each valid claim.
        unresolved_placeholders: valid claims with nothing but placeholders, on a node with more
            than one GPU.
        ineffective: pairs of a device uuid and a claim by an annotation, a file or a variable that
            names the device without effect.
        plugin_managed: the devices that only a device plugin or a DRA driver allocated when this
            was made; None where they make no difference.
    """

    claims: list[ResolvedClaim]
    candidates: list[tuple[str, Candidate]]
    unresolved_placeholders: list[ResolvedClaim]
    ineffective: list[tuple[str, ResolvedClaim]]
    plugin_managed: frozenset[str] | None


def select_claims(
    claims: list[ResolvedClaim], *, single_gpu: bool, plugin_managed: frozenset[str] = frozenset()
) -> PodClaims:
    """Select the valid claims about one pod.

    Args:
        claims: all claims about the pod, in the order of the sources.
        single_gpu: whether the node has one GPU, so that a placeholder cannot mean another.
        plugin_managed: the devices that a device plugin or a DRA driver offers or allocated under
            their real ids: no scheduler allocates them.
    """
    is_limited = any(claim.evidence in _SCHEDULER_EVIDENCE for claim in claims)
    result = PodClaims(claims, [], [], [], plugin_managed if is_limited else None)
    devices = _by_device(claims, single_gpu=single_gpu, plugin_managed=plugin_managed)
    claimable = _claimable(claims, plugin_managed) if is_limited else claims
    for claim in _not_overruled(claimable):
        real = claim.names_real_device
        if not real and not single_gpu:
            result.unresolved_placeholders.append(claim)
            continue
        for found in claim.devices:
            if real and found.is_placeholder:
                break
            candidate = devices[found.uuid].candidate(claim, real=real)
            result.candidates.append((found.uuid, candidate))
    if any(claim.evidence in USER_CONTROLLED for claim in claims):
        held = {uuid for uuid, _ in result.candidates}
        result.ineffective.extend(
            (found.uuid, claim)
            for claim in claims
            if claim.evidence in USER_CONTROLLED
            for found in claim.devices
            if found.uuid not in held and not found.is_placeholder
        )
    return result


_SCHEDULER_EVIDENCE: Final = frozenset({Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV})
"""Evidence of claims that have no effect on a device that only its device plugin allocates."""


def _claimable(
    resolved_claims: list[ResolvedClaim], plugin_managed: frozenset[str]
) -> list[ResolvedClaim]:
    """Return the claims without the devices that their evidence may not hold.

    Scheduler annotations and variables may not hold plugin-managed devices, except those of a
    shared reservation. Annotations that the configuration names (`vouched`) may hold any device.
    """
    result: list[ResolvedClaim] = []
    for claim in resolved_claims:
        if claim.evidence not in _SCHEDULER_EVIDENCE or claim.claim.vouched:
            result.append(claim)
            continue
        allowed = [
            one for one in claim.devices if one.is_reserved or one.uuid not in plugin_managed
        ]
        if allowed:
            result.append(
                claim if len(allowed) == len(claim.devices) else claim._replace(devices=allowed)
            )
    return result


def _not_overruled(resolved_claims: list[ResolvedClaim]) -> list[ResolvedClaim]:
    """Return the claims about a pod that no stronger claim overrules."""
    others = [claim for claim in resolved_claims if claim.evidence != Evidence.RUNTIME_ENV]
    if not others:
        # A variable alone gives access and holds nothing.
        return []
    variables = [claim for claim in resolved_claims if claim.evidence == Evidence.RUNTIME_ENV]
    if not variables:
        return _strongest_real(others)
    return _assign_containers(
        _strongest_real(others + _env_for_placeholders(variables, others)), variables
    )


def _env_for_placeholders(
    variables: list[ResolvedClaim], others: list[ResolvedClaim]
) -> list[ResolvedClaim]:
    """Return claims by variables that show what placeholders mean, if no other claim shows it."""
    counts: dict[str, int] = {}
    for claim in others:
        if claim.names_real_device:
            return []
        name = claim.subject.container
        counts[name] = counts.get(name, 0) + len(claim.claim.devices)
    return [
        claim._replace(is_partial=True)
        for claim in variables
        if len(claim.devices) <= counts.get(claim.subject.container, 0)
    ]


def _assign_containers(
    resolved_claims: list[ResolvedClaim], variables: list[ResolvedClaim]
) -> list[ResolvedClaim]:
    """Assign devices of the pod as a whole to the containers with variables that name them."""
    result: list[ResolvedClaim] = []
    for claim in resolved_claims:
        devices = {one.uuid for one in claim.devices}
        named = [
            claim._replace(subject=variable.subject, devices=variable.devices)
            for variable in variables
            if not claim.subject.container and devices.issuperset(f.uuid for f in variable.devices)
        ]
        unassigned = devices.difference(f.uuid for one in named for f in one.devices)
        if unassigned or not named:
            rest = [one for one in claim.devices if one.uuid in unassigned]
            result.append(claim._replace(devices=rest) if named else claim)
        result += named
    return result


def _strongest_real(resolved_claims: list[ResolvedClaim]) -> list[ResolvedClaim]:
    """Return the strongest claims with real ids, and placeholders of containers without any."""
    if len(resolved_claims) == 1:
        return resolved_claims
    real = [claim for claim in resolved_claims if claim.names_real_device]
    if not real:
        return _strongest(resolved_claims)
    # A container with nothing but placeholders keeps them if all real ids are of other containers.
    known_containers = {claim.subject.container for claim in real}
    if "" in known_containers:
        return _strongest(real)
    known_containers.add("")
    return _strongest(real) + _strongest(
        [claim for claim in resolved_claims if claim.subject.container not in known_containers]
    )


def _strongest(resolved_claims: list[ResolvedClaim]) -> list[ResolvedClaim]:
    """Return the claims with the strongest evidence for each container."""
    with_plugin_answer = {
        (claim.subject.container, claim.claim.resource)
        for claim in resolved_claims
        if claim.evidence == Evidence.PLUGIN_ANSWER
    }
    if with_plugin_answer:
        resolved_claims = [
            claim
            for claim in resolved_claims
            if claim.evidence != Evidence.KUBELET_IDS
            or (claim.subject.container, claim.claim.resource) not in with_plugin_answer
        ]
    best: dict[str, int] = {}
    for claim in resolved_claims:
        name = claim.subject.container
        best[name] = min(_rank(claim), best.get(name, _rank(claim)))
    pod_rank = best.get("")
    if pod_rank is not None and pod_rank > min(best.values()):
        # A container has a stronger claim than the pod as a whole.
        del best[""]
    elif pod_rank is not None:
        best = {name: rank for name, rank in best.items() if rank == pod_rank}
    return [claim for claim in resolved_claims if best.get(claim.subject.container) == _rank(claim)]


def _rank(resolved: ResolvedClaim) -> int:
    """Return the rank of a claim on its container; `KUBELET_IDS` ranks as `PLUGIN_ANSWER`."""
    is_kubelet = resolved.evidence == Evidence.KUBELET_IDS
    return CONTAINER_RANK[Evidence.PLUGIN_ANSWER if is_kubelet else resolved.evidence]


def _by_device(
    resolved_claims: list[ResolvedClaim], *, single_gpu: bool, plugin_managed: frozenset[str]
) -> dict[str, "_DeviceClaims"]:
    by_device: dict[str, list[tuple[ResolvedClaim, ResolvedDevice]]] = {}
    for claim in resolved_claims:
        for found in claim.devices:
            if single_gpu or not found.is_placeholder:
                by_device.setdefault(found.uuid, []).append((claim, found))
    return {
        uuid: _DeviceClaims(device_claims, plugin_managed=uuid in plugin_managed)
        for uuid, device_claims in by_device.items()
    }


class _ContainerFacts(NamedTuple):
    """What all claims about a container and a device say; unknown parts are None or empty.

    Attributes:
        share: the container's share of the device.
        allocated_whole: whether the kubelet allocated the whole device to the container.
        container_id: the runtime's id of the container.
        replicas: numbers of the container's replicas of the device.
        claimed: the ResourceClaim that was allocated the device; of several the first by name.
    """

    share: float | None
    allocated_whole: bool
    container_id: str
    replicas: tuple[str, ...]
    claimed: ClaimedDevice | None


class _DeviceClaims:
    """All claims about one pod on one device, overruled ones included.

    An overruled claim may still be the one that knows the share.
    """

    def __init__(
        self, claims: list[tuple[ResolvedClaim, ResolvedDevice]], *, plugin_managed: bool
    ) -> None:
        self._by_container: dict[str, list[tuple[ResolvedClaim, ResolvedDevice]]] = {}
        for claim, found in claims:
            self._by_container.setdefault(claim.subject.container, []).append((claim, found))
        replicated = any(c.is_partial or f.is_placeholder or f.is_reserved for c, f in claims)
        self._allocated_whole = any(_is_exclusive(claim, found) for claim, found in claims)
        # Only the device plugin decides what part of the device its replica is.
        self._plugin_managed = plugin_managed or any(found.replica for _, found in claims)
        shares = [share for claim, _ in claims if (share := self._share(claim)) is not None]
        # A share decides whether others can hold the device as well; without shares, a replica or
        # a placeholder shows that they may. No claim reduces what the kubelet gave to one pod only.
        self._divisible = not self._allocated_whole and (min(shares) < 1 if shares else replicated)
        self._facts: dict[str, _ContainerFacts] = {}

    def candidate(self, resolved: ResolvedClaim, *, real: bool) -> Candidate:
        """Return the candidate of a valid claim, completed from all claims on its container."""
        name = resolved.subject.container
        if name not in self._facts:
            self._facts[name] = self._gather(name)
        facts = self._facts[name]
        return Candidate(
            resolved,
            facts.share if (own := self._share(resolved)) is None else own,
            self._divisible,
            facts.allocated_whole,
            _pod_rank(resolved.evidence, allocated_whole=facts.allocated_whole, real=real),
            resolved.claim.subject.container_id or facts.container_id,
            facts.replicas,
            facts.claimed,
        )

    def _share(self, resolved: ResolvedClaim) -> float | None:
        """Return the share of a claim, if its evidence may define a share."""
        if self._allocated_whole:
            return None
        is_annotation = (
            resolved.evidence == Evidence.SCHEDULER_ANNOTATION and not resolved.claim.vouched
        )
        if self._plugin_managed and is_annotation and not resolved.devices[0].is_reserved:
            return None
        return resolved.claim.share

    def _gather(self, name: str) -> _ContainerFacts:
        claims = self._by_container[name]
        if name and len(self._by_container) - ("" in self._by_container) == 1:
            # Claims on the pod as a whole are about its only container with claims on the device.
            claims = claims + self._by_container.get("", [])
        shares = [
            (CONTAINER_RANK[claim.evidence], share)
            for claim, _ in claims
            if (share := self._share(claim)) is not None
        ]
        allocated_whole = any(_is_exclusive(claim, f) for claim, f in claims)
        ids = {claim.claim.subject.container_id for claim, _ in claims} - {""}
        replicas = {f.replica for _, f in claims} - {""}
        return _ContainerFacts(
            min(shares)[1] if shares else None,
            allocated_whole,
            min(ids, default=""),
            tuple(sorted(replicas, key=lambda number: (len(number), number))),
            min(filter(None, (_claimed(claim, f) for claim, f in claims)), default=None),
        )


def _claimed(resolved: ResolvedClaim, found: ResolvedDevice) -> ClaimedDevice | None:
    """Return the ResourceClaim and the name under which a claim names the device."""
    namespace, _, name = resolved.claim.resource_claim.partition("/")
    if not (name and found.dra_name):
        return None
    driver, _, rest = found.dra_name.partition("/")
    pool, _, device = rest.rpartition("/")
    return ClaimedDevice(namespace, name, driver, pool, device)


def _is_exclusive(resolved: ResolvedClaim, found: ResolvedDevice) -> bool:
    """Whether the kubelet allocated the device to this pod only."""
    if resolved.evidence == Evidence.PLUGIN_ANSWER:
        return not resolved.is_partial
    if resolved.claim.share is not None and resolved.claim.share < 1:  # reported by the source
        return False
    return (
        resolved.evidence == Evidence.KUBELET_IDS
        and found.is_whole_device
        and not resolved.is_partial
    )


def _pod_rank(evidence: Evidence, *, allocated_whole: bool, real: bool) -> int:
    """Return the rank of a claim between pods; a whole device ranks at least as `KUBELET_IDS`."""
    if not real:
        return len(POD_RANK) + 1
    rank = POD_RANK[evidence]
    return min(rank, POD_RANK[Evidence.KUBELET_IDS]) if allocated_whole else rank
