"""Which annotations of pods count, for sources that see the annotation and not the pod's requests.

A source that reads pods from the API server writes it; the container runtime doesn't tell what a
pod requests. The join's result adds which pods claim what was given to another. The event
loop writes it and any thread reads it: each step is one operation on a dict, or replaces a set.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pipeline.model import Pod

_Name: TypeAlias = tuple[str, bool]
"""A uid, and whether the pod only names it as its static pod's."""


class Accepted:
    """By pod, the annotations that were accepted and how many devices each names.

    Attributes:
        contradicting: pods that claim a device that the kubelet or the runtime gave to another, as
            `namespace/name`; a pod without a known name by its uid.
    """

    contradicting: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._told: dict[str, dict[_Name, Mapping[str, int]]] = {}

    def replace(self, source: str, pods: Iterable[Pod]) -> None:
        """Take all pods of a source."""
        self._told[source] = {name: _numbers(pod) for pod in pods for name in _names(pod)}

    def put(self, source: str, pod: Pod) -> None:
        """Take a pod as it is now."""
        told = self._told.setdefault(source, {})
        for name in _names(pod):
            told[name] = _numbers(pod)

    def drop(self, source: str, pod: Pod) -> None:
        """Forget a pod."""
        for name in _names(pod):
            self._told.get(source, {}).pop(name, None)

    def number(self, uid: str, annotation: str) -> int | None:
        """Return how many devices an annotation names, 0 if it doesn't count.

        Args:
            uid: of the pod; of a static pod that of the kubelet.
            annotation: its key.

        Returns:
            None if no source has told of the pod.
        """
        for told in list(self._told.values()):
            # Whoever creates a pod can name any uid as its static pod's: the uid's pod goes first.
            for name in ((uid, False), (uid, True)):
                if (found := told.get(name)) is not None:
                    return found.get(annotation, 0)
        return None


def _names(pod: Pod) -> tuple[_Name, ...]:
    own = (pod.info.uid, False)
    return (own, (pod.static_uid, True)) if pod.static_uid else (own,)


def _numbers(pod: Pod) -> Mapping[str, int]:
    devices: dict[str, set[object]] = {}
    for claim in pod.claims:
        devices.setdefault(claim.origin.detail, set()).update(claim.devices)
    return {annotation: len(found) for annotation, found in devices.items()}
