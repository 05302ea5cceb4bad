"""Naming a container as far as a source can."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PartialRef:
    """What a source knows of a container; every part may be missing (empty).

    Sources don't resolve: the kubelet's pod-resources lack uids, its checkpoint lacks names, a
    scheduler's annotation lacks containers. The join puts the parts together.
    """

    namespace: str = ""
    pod: str = ""
    container: str = ""
    uid: str = ""
    container_id: str = ""
