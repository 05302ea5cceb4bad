"""Devices of reservation pods: such a pod gets them from the kubelet, and other pods share them."""

from collections.abc import Iterable, Iterator

from pipeline.join.claim_resolution import PodKey, ResolvedClaim
from pipeline.join.device_index import ResolvedDevice
from pipeline.model import Evidence

_FROM_KUBELET = (Evidence.PLUGIN_ANSWER, Evidence.KUBELET_IDS)


def resolve_shared(
    shared_claims: Iterable[ResolvedClaim], reservation_claims: Iterable[ResolvedClaim]
) -> Iterator[ResolvedClaim]:
    """Yield the claims of pods that share reserved devices, with these devices.

    A claim on a reservation that this node does not have is left out: its pod shares nothing here.

    Args:
        shared_claims: claims of pods that share devices.
        reservation_claims: claims of reservation pods.
    """
    got = _devices_by_group(reservation_claims)
    for word in shared_claims:
        uuids = {uuid for raw in word.claim.devices for uuid in got.get(raw.text, ())}
        if uuids:
            yield word._replace(
                devices=[ResolvedDevice(uuid, is_reserved=True) for uuid in sorted(uuids)]
            )


def _devices_by_group(reservations: Iterable[ResolvedClaim]) -> dict[str, set[str]]:
    """Return the devices of each group, by the claims of its reservation pods.

    Ids that the kubelet allocated count. Annotations of a reservation pod count only where no
    source reports such ids.
    """
    said: dict[PodKey, list[ResolvedClaim]] = {}
    for word in reservations:
        subject = word.subject
        said.setdefault((subject.namespace, subject.pod, subject.uid), []).append(word)
    got: dict[str, set[str]] = {}
    for words in said.values():
        real = [word for word in words if word.names_real_device]
        given = [word for word in real if word.evidence in _FROM_KUBELET]
        annotated = [word for word in real if word.evidence == Evidence.SCHEDULER_ANNOTATION]
        answered = [word for word in given if word.evidence == Evidence.PLUGIN_ANSWER]
        uuids = {
            found.uuid
            for word in answered or given or annotated
            for found in word.devices
            if not found.is_placeholder
        }
        for word in words:
            for group in word.pod.reserves if word.pod is not None else ():
                got.setdefault(group, set()).update(uuids)
    return got
