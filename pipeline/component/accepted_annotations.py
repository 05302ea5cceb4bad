"""Which annotations of pods count, for sources that see the annotation and not the pod's requests.

A source that reads pods from the API server writes it; the container runtime doesn't tell what a
pod requests. The join's result adds which GPUs are a scheduler's to give out. The event loop writes
it and any thread reads it: each step is one operation on a dict, or replaces one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import Attribution, Evidence, Holder, Pod, RawDeviceId

_Name: TypeAlias = tuple[str, bool]
"""A uid, and whether the pod only names it as its static pod's."""


_Named: TypeAlias = Mapping[str, frozenset[RawDeviceId]]
"""By annotation, the devices that it names."""


_ALLOCATION_EVIDENCE: Final = frozenset(
    {
        Evidence.PLUGIN_ANSWER,
        Evidence.KUBELET_IDS,
        Evidence.RUNTIME_CDI,
        Evidence.RUNTIME_NODES,
    }
)
"""Evidence that no author of a pod controls."""


class Gpu(NamedTuple):
    """A GPU that an annotation may name.

    Attributes:
        uuid: the GPU's.
        plugin_managed: a device plugin or a DRA driver gives it out, and no scheduler.
        exclusive_pods: pods to which the kubelet or the runtime gave it, or an instance of it,
            alone, as `namespace/name`; a pod without a known name by its uid.
    """

    uuid: str
    plugin_managed: bool
    exclusive_pods: frozenset[str]


class AcceptedAnnotations:
    """By pod, the annotations that were accepted and the devices that each names.

    Attributes:
        gpus: those of the node, by minor number; None until all sources have told what they know.
    """

    gpus: Mapping[int, Gpu] | None = None

    def __init__(self) -> None:
        self._annotations: dict[str, dict[_Name, _Named]] = {}

    def replace(self, source: str, pods: Iterable[Pod]) -> None:
        """Take all pods of a source."""
        self._annotations[source] = {name: _devices(pod) for pod in pods for name in _names(pod)}

    def put(self, source: str, pod: Pod) -> None:
        """Take a pod as it is now."""
        told = self._annotations.setdefault(source, {})
        for name in _names(pod):
            told[name] = _devices(pod)

    def drop(self, source: str, pod: Pod) -> None:
        """Forget a pod."""
        for name in _names(pod):
            self._annotations.get(source, {}).pop(name, None)

    def devices(self, uid: str, annotation: str) -> frozenset[RawDeviceId] | None:
        """Return the devices that an annotation names, none if it doesn't count.

        Args:
            uid: of the pod; of a static pod that of the kubelet.
            annotation: its key.

        Returns:
            None if no source has told of the pod.
        """
        for told in list(self._annotations.values()):
            # Whoever creates a pod can name any uid as its static pod's: the uid's pod goes first.
            for name in ((uid, False), (uid, True)):
                if (found := told.get(name)) is not None:
                    return found.get(annotation, frozenset())
        return None


def by_minor(known: Iterable[Attribution], plugin_managed: Collection[str]) -> dict[int, Gpu]:
    """Return the GPUs that are there, by minor number.

    Args:
        known: who holds which device.
        plugin_managed: the devices that no scheduler gives out.
    """
    known = list(known)
    alone: dict[str, set[str]] = {}
    for one in known:
        of_gpu = alone.setdefault(one.device.gpu_uuid, set())
        of_gpu.update(pod_of(holder) for holder in one.holders if _is_exclusive(holder))
    return {
        device.minor: Gpu(device.uuid, device.uuid in plugin_managed, frozenset(alone[device.uuid]))
        for one in known
        for device in [one.device]
        if one.present and device.mig is None and device.minor is not None
    }


def pod_of(holder: Holder) -> str:
    """Return a holder's pod as `namespace/name`; its uid where nobody knows the name."""
    subject = holder.subject
    return f"{subject.namespace}/{subject.pod}" if subject.pod else subject.uid


def _is_exclusive(holder: Holder) -> bool:
    """Whether the kubelet or the runtime gave a pod all of a device."""
    whole = holder.share is None or holder.share >= 1
    return holder.evidence in _ALLOCATION_EVIDENCE and whole and not holder.replicas


def _names(pod: Pod) -> tuple[_Name, ...]:
    own = (pod.info.uid, False)
    return (own, (pod.static_uid, True)) if pod.static_uid else (own,)


def _devices(pod: Pod) -> _Named:
    devices: dict[str, set[RawDeviceId]] = {}
    for claim in pod.claims:
        devices.setdefault(claim.origin.detail, set()).update(claim.devices)
    return {annotation: frozenset(found) for annotation, found in devices.items()}
