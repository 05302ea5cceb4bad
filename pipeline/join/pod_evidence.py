"""Selects which claims about one pod are valid, by the strength of their evidence."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from pipeline.join.arbitration import Candidate
from pipeline.join.claim_resolution import ResolvedClaim
from pipeline.join.device_index import ResolvedDevice
from pipeline.join.trust_rules import CONTAINER_RANK, POD_RANK, USER_CONTROLLED
from pipeline.model import Evidence


class PodClaims(NamedTuple):
    """The claims about one pod, and the candidates that result.

    Attributes:
        claims: all claims about the pod.
        candidates: device uuids, with a candidate for each valid claim.
        unresolved_placeholders: valid claims with nothing but placeholders, on a node with more
            than one GPU.
        ineffective: device uuids, with the annotations, files and variables that name the device
            without effect.
        plugin_managed: the devices that only a device plugin or a DRA driver allocates, as they
            were at that time; None where they make no difference.
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
        single_gpu: the node has one GPU, so that a placeholder cannot mean another.
        plugin_managed: the devices that a device plugin or a DRA driver offers or allocated under
            their real ids: no scheduler allocates them.
    """
    limited = any(word.evidence in _SCHEDULER_EVIDENCE for word in claims)
    standing = PodClaims(claims, [], [], [], plugin_managed if limited else None)
    devices: dict[str, _DeviceClaims] | None = None
    stated = _claimable(claims, plugin_managed) if limited else claims
    for word in _not_overruled(stated):
        real = word.names_real_device
        if not real and not single_gpu:
            standing.unresolved_placeholders.append(word)
            continue
        for found in word.devices:
            if real and found.is_placeholder:
                break
            if len(claims) == len(word.devices) == 1:
                on_it = _DeviceClaims([(word, found)], plugin_managed=found.uuid in plugin_managed)
            else:
                devices = devices or _by_device(claims, lone=single_gpu, closed=plugin_managed)
                on_it = devices[found.uuid]
            standing.candidates.append((found.uuid, on_it.candidate(word, real=real)))
    if any(word.evidence in USER_CONTROLLED for word in claims):
        held = {uuid for uuid, _ in standing.candidates}
        standing.ineffective.extend(
            (found.uuid, word)
            for word in claims
            if word.evidence in USER_CONTROLLED
            for found in word.devices
            if found.uuid not in held and not found.is_placeholder
        )
    return standing


_SCHEDULER_EVIDENCE: Final = frozenset({Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV})
"""Evidence of claims that have no effect on a device that only its device plugin allocates."""


def _claimable(resolved_claims: list[ResolvedClaim], closed: frozenset[str]) -> list[ResolvedClaim]:
    """Return the claims that may hold devices, without plugin-managed devices where those count.

    Plugin-managed devices are excluded from scheduler annotations and variables, except for pods
    that share a reservation, and for annotations that the configuration names (`vouched`).
    """
    found: list[ResolvedClaim] = []
    for word in resolved_claims:
        if word.evidence not in _SCHEDULER_EVIDENCE or word.claim.vouched:
            found.append(word)
            continue
        left = [one for one in word.devices if one.is_reserved or one.uuid not in closed]
        if left:
            found.append(word if len(left) == len(word.devices) else word._replace(devices=left))
    return found


def _not_overruled(resolved_claims: list[ResolvedClaim]) -> list[ResolvedClaim]:
    others = [word for word in resolved_claims if word.evidence != Evidence.RUNTIME_ENV]
    if not others:
        return []
    variables = [word for word in resolved_claims if word.evidence == Evidence.RUNTIME_ENV]
    if not variables:
        return _strongest_real(others)
    return _assign_containers(
        _strongest_real(others + _env_for_placeholders(variables, others)), variables
    )


def _env_for_placeholders(
    variables: list[ResolvedClaim], others: list[ResolvedClaim]
) -> list[ResolvedClaim]:
    """Return the variables that show which devices placeholders mean, if nothing else shows it."""
    counts: dict[str, int] = {}
    for word in others:
        if word.names_real_device:
            return []
        name = word.subject.container
        counts[name] = counts.get(name, 0) + len(word.claim.devices)
    return [
        word._replace(is_partial=True)
        for word in variables
        if len(word.devices) <= counts.get(word.subject.container, 0)
    ]


def _assign_containers(
    resolved_claims: list[ResolvedClaim], variables: list[ResolvedClaim]
) -> list[ResolvedClaim]:
    """Assign devices of the pod as a whole to the containers with variables that name them."""
    found: list[ResolvedClaim] = []
    for word in resolved_claims:
        devices = {one.uuid for one in word.devices}
        named = [
            word._replace(subject=variable.subject, devices=variable.devices)
            for variable in variables
            if not word.subject.container and devices.issuperset(f.uuid for f in variable.devices)
        ]
        left = devices.difference(f.uuid for one in named for f in one.devices)
        if left or not named:
            rest = [one for one in word.devices if one.uuid in left]
            found.append(word._replace(devices=rest) if named else word)
        found += named
    return found


def _strongest_real(resolved_claims: list[ResolvedClaim]) -> list[ResolvedClaim]:
    if len(resolved_claims) == 1:
        return resolved_claims
    real = [word for word in resolved_claims if word.names_real_device]
    if not real:
        return _strongest(resolved_claims)
    # A container with nothing but placeholders keeps them if all real ids are of other containers.
    known = {word.subject.container for word in real}
    if "" in known:
        return _strongest(real)
    known.add("")
    return _strongest(real) + _strongest(
        [w for w in resolved_claims if w.subject.container not in known]
    )


def _strongest(resolved_claims: list[ResolvedClaim]) -> list[ResolvedClaim]:
    """Return the claims with the strongest evidence for each container."""
    answered = {
        (word.subject.container, word.claim.resource)
        for word in resolved_claims
        if word.evidence == Evidence.PLUGIN_ANSWER
    }
    if answered:
        resolved_claims = [
            word
            for word in resolved_claims
            if word.evidence != Evidence.KUBELET_IDS
            or (word.subject.container, word.claim.resource) not in answered
        ]
    best: dict[str, int] = {}
    for word in resolved_claims:
        name = word.subject.container
        best[name] = min(_rank(word), best.get(name, _rank(word)))
    whole = best.pop("", None)
    if whole is not None:
        if any(rank < whole for rank in best.values()):
            # A container has a stronger claim than the pod as a whole.
            whole = None
        else:
            best = {name: whole for name, rank in best.items() if rank == whole}
            best[""] = whole
    return [word for word in resolved_claims if best.get(word.subject.container) == _rank(word)]


_KUBELET: Final = (CONTAINER_RANK[Evidence.PLUGIN_ANSWER], CONTAINER_RANK[Evidence.KUBELET_IDS])


def _rank(resolved: ResolvedClaim) -> int:
    """Return the rank of a claim; the two ranks of the kubelet count as one."""
    return _KUBELET[0] if resolved.rank == _KUBELET[1] else resolved.rank


def _by_device(
    resolved_claims: list[ResolvedClaim], *, lone: bool, closed: frozenset[str]
) -> dict[str, "_DeviceClaims"]:
    said: dict[str, list[tuple[ResolvedClaim, ResolvedDevice]]] = {}
    for word in resolved_claims:
        for found in word.devices:
            if lone or not found.is_placeholder:
                said.setdefault(found.uuid, []).append((word, found))
    return {
        uuid: _DeviceClaims(on_it, plugin_managed=uuid in closed) for uuid, on_it in said.items()
    }


class _ContainerFacts(NamedTuple):
    """What all claims about one container and one device say together.

    Attributes:
        share: the part of the device, if known.
        allocated_whole: the kubelet allocated the whole device to it.
        container_id: the runtime's id, if known.
        replicas: numbers of its replicas.
    """

    share: float | None
    allocated_whole: bool
    container_id: str
    replicas: tuple[str, ...]


class _DeviceClaims:
    """All claims about one pod on one device, overruled ones included.

    An overruled claim may still be the one that knows the share.
    """

    def __init__(
        self, claims: Iterable[tuple[ResolvedClaim, ResolvedDevice]], *, plugin_managed: bool
    ) -> None:
        self._by_container: dict[str, list[tuple[ResolvedClaim, ResolvedDevice]]] = {}
        replicated = False
        self._allocated_whole = False
        self._plugin_managed = plugin_managed
        for word, found in claims:
            self._by_container.setdefault(word.subject.container, []).append((word, found))
            replicated = replicated or word.is_partial or found.is_placeholder or found.is_reserved
            self._allocated_whole = self._allocated_whole or _is_exclusive(word, found)
            # Only the device plugin decides what part of the device its replica is.
            self._plugin_managed = self._plugin_managed or found.replica != ""
        every = [self._share(word) for mine in self._by_container.values() for word, _ in mine]
        shares = [share for share in every if share is not None]
        # A share decides whether others can hold the device as well; without shares, a replica or
        # a placeholder shows that they may. No claim reduces what the kubelet gave to one pod only.
        self._divisible = not self._allocated_whole and (min(shares) < 1 if shares else replicated)
        self._facts: dict[str, _ContainerFacts] = {}

    def candidate(self, resolved: ResolvedClaim, *, real: bool) -> Candidate:
        """Return the candidate of a valid claim, completed from all claims on its container."""
        name, claim = resolved.subject.container, resolved.claim
        if name not in self._facts:
            self._facts[name] = self._gather(name)
        share, given, container_id, replicas = self._facts[name]
        return Candidate(
            resolved.subject,
            resolved.pod,
            resolved.evidence,
            resolved.source,
            share if (own := self._share(resolved)) is None else own,
            self._divisible,
            given,
            _pod_rank(resolved.evidence, given=given, real=real),
            claim.since,
            claim.subject.container_id or container_id,
            replicas,
        )

    def _share(self, resolved: ResolvedClaim) -> float | None:
        """Return the share of a claim, if its evidence may define a share."""
        if self._allocated_whole:
            return None
        said = resolved.evidence == Evidence.SCHEDULER_ANNOTATION and not resolved.claim.vouched
        if self._plugin_managed and said and not resolved.devices[0].is_reserved:
            return None
        return resolved.claim.share

    def _gather(self, name: str) -> "_ContainerFacts":
        mine = self._by_container[name]
        if name and len(self._by_container) - ("" in self._by_container) == 1:
            # Claims on the pod as a whole are about its only container with claims on the device.
            mine = mine + self._by_container.get("", [])
        shares = [(w.rank, share) for w, _ in mine if (share := self._share(w)) is not None]
        given = any(_is_exclusive(w, f) for w, f in mine)
        ids = [w.claim.subject.container_id for w, _ in mine if w.claim.subject.container_id]
        replicas = {f.replica for _, f in mine if f.replica}
        return _ContainerFacts(
            min(shares)[1] if shares else None,
            given,
            min(ids, default=""),
            tuple(sorted(replicas, key=lambda number: (len(number), number))),
        )


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


def _pod_rank(evidence: Evidence, *, given: bool, real: bool) -> int:
    """Return the rank of a claim between pods: the best one of the evidence on its device."""
    if not real:
        return len(POD_RANK) + 1
    rank = POD_RANK[evidence]
    return min(rank, POD_RANK[Evidence.KUBELET_IDS]) if given else rank
