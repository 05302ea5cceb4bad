"""Scheduler annotations that are accepted as claims, shared between sources.

A container runtime shows a pod's annotations, but not its resource requests. Without the requests,
a source cannot decide whether to accept an annotation. A source that reads pods from the API server
decides, and records the result here. After each snapshot, the publisher sets the GPUs that are
present, and which of them no scheduler may allocate. The event loop writes, and any thread may
read: each step of an update is one dict operation, or replaces one object.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import Attribution, Evidence, Holder, Pod, RawDeviceId, owner_text

_PodKey: TypeAlias = tuple[str, bool]
"""A pod UID, and whether a mirror pod only names it as the UID of its static pod."""


_DevicesByAnnotation: TypeAlias = Mapping[str, frozenset[RawDeviceId]]
"""The devices that each annotation names, by annotation key."""


_ALLOCATION_EVIDENCE: Final = frozenset(
    {
        Evidence.PLUGIN_ANSWER,
        Evidence.KUBELET_IDS,
        Evidence.RUNTIME_CDI,
        Evidence.RUNTIME_NODES,
    }
)
"""Evidence that the author of a pod cannot forge."""


class Gpu(NamedTuple):
    """A GPU that an annotation can name.

    Attributes:
        uuid: the GPU's UUID.
        plugin_managed: a device plugin or a DRA driver allocates the GPU, and no scheduler may.
        exclusive_pods: pods to which the kubelet or the runtime gave the whole GPU, or a whole MIG
            instance of it, as `namespace/name`; the UID of a pod with unknown name.
    """

    uuid: str
    plugin_managed: bool
    exclusive_pods: frozenset[str]


class AcceptedAnnotations:
    """The accepted annotations of each pod, with the devices that each annotation names.

    Attributes:
        gpus: the GPUs that are present, by minor number; None while a source has not reported.
    """

    gpus: Mapping[int, Gpu] | None = None

    def __init__(self) -> None:
        self._annotations: dict[str, dict[_PodKey, _DevicesByAnnotation]] = {}

    def replace(self, source: str, pods: Iterable[Pod]) -> None:
        """Replace the accepted annotations of all pods that a source reported."""
        self._annotations[source] = {key: _devices(pod) for pod in pods for key in _keys(pod)}

    def put(self, source: str, pod: Pod) -> None:
        """Set the accepted annotations of one pod that a source reported."""
        known = self._annotations.setdefault(source, {})
        for key in _keys(pod):
            known[key] = _devices(pod)

    def drop(self, source: str, pod: Pod) -> None:
        """Forget the accepted annotations of one pod that a source reported."""
        for key in _keys(pod):
            self._annotations.get(source, {}).pop(key, None)

    def devices(self, uid: str, annotation: str) -> frozenset[RawDeviceId] | None:
        """Return the devices that a pod's annotation names.

        Args:
            uid: the pod's UID; for a static pod, the UID that the kubelet uses.
            annotation: the annotation's key.

        Returns:
            The devices; an empty set if the annotation was not accepted; None if no source has
            reported the pod.
        """
        for pods in list(self._annotations.values()):
            # Anyone who can create a pod can name any UID as that of its static pod, so the pod
            # that has the UID takes precedence.
            for key in ((uid, False), (uid, True)):
                if (found := pods.get(key)) is not None:
                    return found.get(annotation, frozenset())
        return None


def by_minor(known: Iterable[Attribution], plugin_managed: Collection[str]) -> dict[int, Gpu]:
    """Return the GPUs that are present and have a known minor number, by minor number.

    Args:
        known: the attributions of all devices.
        plugin_managed: UUIDs of the devices that a device plugin or a DRA driver allocates.
    """
    known = list(known)
    exclusive: dict[str, set[str]] = {}
    for one in known:
        pods = exclusive.setdefault(one.device.gpu_uuid, set())
        pods.update(pod_of(holder) for holder in one.holders if _is_exclusive(holder))
    return {
        device.minor: Gpu(
            device.uuid, device.uuid in plugin_managed, frozenset(exclusive[device.uuid])
        )
        for one in known
        for device in [one.device]
        if one.present and device.mig is None and device.minor is not None
    }


def pod_of(holder: Holder) -> str:
    """Return a holder's pod as `namespace/name`, or its UID if the name is unknown.

    Of a job, and of a container without a pod: `job 1234`, `container trainer`.
    """
    subject = holder.subject
    return owner_text(subject.namespace, subject.pod, subject.uid)


def _is_exclusive(holder: Holder) -> bool:
    """Return whether the kubelet or the runtime gave the pod the whole device."""
    whole = holder.share is None or holder.share >= 1
    return holder.evidence in _ALLOCATION_EVIDENCE and whole and not holder.replicas


def _keys(pod: Pod) -> tuple[_PodKey, ...]:
    own = (pod.info.uid, False)
    return (own, (pod.static_uid, True)) if pod.static_uid else (own,)


def _devices(pod: Pod) -> _DevicesByAnnotation:
    devices: dict[str, set[RawDeviceId]] = {}
    for claim in pod.claims:
        devices.setdefault(claim.origin.detail, set()).update(claim.devices)
    return {annotation: frozenset(found) for annotation, found in devices.items()}
