"""A reference to a container, as complete as a source can make it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PartialRef:
    """What a source knows of a container's identity; every part may be missing (empty).

    Sources do not resolve references: the kubelet's pod-resources API has no uids, its checkpoint
    has no names, and a scheduler's annotation has no containers. The join combines the parts.
    """

    namespace: str = ""
    pod: str = ""
    container: str = ""
    uid: str = ""
    container_id: str = ""
