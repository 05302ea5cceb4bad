"""Devices of reservation pods: such a pod gets them from the kubelet, and other pods share them."""

from collections.abc import Iterable, Iterator

from pipeline.join.claim_resolution import PodKey, ResolvedClaim
from pipeline.join.device_index import ResolvedDevice
from pipeline.model import Evidence

_PRECEDENCE = (Evidence.PLUGIN_ANSWER, Evidence.KUBELET_IDS, Evidence.SCHEDULER_ANNOTATION)


def resolve_shared(
    shared_claims: Iterable[ResolvedClaim], reservation_claims: Iterable[ResolvedClaim]
) -> Iterator[ResolvedClaim]:
    """Yield the claims of pods that share reserved devices, with these devices.

    A claim on a reservation that this node does not have is left out: its pod shares nothing here.

    Args:
        shared_claims: claims of pods that share devices.
        reservation_claims: claims of reservation pods.
    """
    devices_by_group = _devices_by_group(reservation_claims)
    for claim in shared_claims:
        uuids = {uuid for raw in claim.claim.devices for uuid in devices_by_group.get(raw.text, ())}
        if uuids:
            yield claim._replace(
                devices=[ResolvedDevice(uuid, is_reserved=True) for uuid in sorted(uuids)]
            )


def _devices_by_group(reservations: Iterable[ResolvedClaim]) -> dict[str, set[str]]:
    """Return the devices of each group, by the claims of its reservation pods.

    Ids that the kubelet allocated count. Annotations of a reservation pod count only where no
    source reports such ids.
    """
    claims_by_pod: dict[PodKey, list[ResolvedClaim]] = {}
    for claim in reservations:
        claims_by_pod.setdefault(claim.pod_key, []).append(claim)
    devices: dict[str, set[str]] = {}
    for claims in claims_by_pod.values():
        uuids: set[str] = set()
        for evidence in _PRECEDENCE:
            uuids = uuids or {
                found.uuid
                for claim in claims
                if claim.evidence == evidence
                for found in claim.devices
                if not found.is_placeholder
            }
        for claim in claims:
            for group in claim.pod.reserves if claim.pod is not None else ():
                devices.setdefault(group, set()).update(uuids)
    return devices
