"""Whether a DaemonSet's pods are being replaced by new ones, and whether the new ones begin."""

from collections.abc import Mapping
from typing import Any, Final

from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from podgpu.doctor.cluster.objects import Cluster, Raw
from podgpu.doctor.cluster.scheduling_rules import is_owner

_BEGINS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""What a container waits for that has not begun yet."""


def update_progress(daemonset: Raw) -> str:
    """Return how far an update is, for people; empty if none is under way.

    A count of 0 is left out of the status, as the API has it.
    """
    status = as_dict(daemonset.get("status"))
    desired = as_int(status.get("desiredNumberScheduled")) or 0
    updated = as_int(status.get("updatedNumberScheduled")) or 0
    changed = as_int(as_dict(daemonset.get("metadata")).get("generation")) or 0
    if (as_int(status.get("observedGeneration")) or changed) < changed:
        return "it was changed just now, and the controller manager has not seen that yet"
    if updated >= desired:
        return ""
    strategy = as_dict(as_dict(daemonset.get("spec")).get("updateStrategy"))
    if as_text(strategy.get("type")) == "OnDelete":
        return f"{updated} of {desired} are new, the others stay until somebody deletes them"
    surge = as_dict(strategy.get("rollingUpdate")).get("maxSurge")
    order = "" if surge in (None, 0, "0", "0%") else ": an old pod goes when the new one is ready"
    return f"an update is under way, {updated} of {desired} are new{order}"


def is_stuck(daemonset: Raw, cluster: Cluster) -> bool:
    """Whether a pod of it has trouble to begin, beside an old one that is ready for it."""
    return any(_fails(pod) for pod in cluster.pods or () if is_owner(daemonset, pod))


def _fails(pod: Mapping[str, Any]) -> bool:
    """Whether a container of it can't begin, or ended and is not ready."""
    status = as_dict(pod.get("status"))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in as_dicts(status.get(kind)):
            waiting = as_dict(as_dict(container.get("state")).get("waiting"))
            restarted = bool(as_int(container.get("restartCount")))
            if as_text(waiting.get("reason")) not in _BEGINS:
                return True
            if restarted and container.get("ready") is False:
                return True
    return False
