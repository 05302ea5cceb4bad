"""Progress of a DaemonSet's update, and whether its new pods fail to start."""

from collections.abc import Mapping
from typing import Any, Final

from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from podgpu.doctor.cluster.objects import Cluster, Raw
from podgpu.doctor.cluster.scheduling_rules import is_owner

_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting reasons of a container that starts normally."""


def update_progress(daemonset: Raw) -> str:
    """Return the progress of an update, for people; empty if none is in progress.

    The API omits a count of 0 from the status.
    """
    status = as_dict(daemonset.get("status"))
    desired = as_int(status.get("desiredNumberScheduled")) or 0
    updated = as_int(status.get("updatedNumberScheduled")) or 0
    changed = as_int(as_dict(daemonset.get("metadata")).get("generation")) or 0
    if (as_int(status.get("observedGeneration")) or changed) < changed:
        return "it has just changed, and the controller manager has not processed that yet"
    if updated >= desired:
        return ""
    strategy = as_dict(as_dict(daemonset.get("spec")).get("updateStrategy"))
    if as_text(strategy.get("type")) == "OnDelete":
        return f"{updated} of {desired} are new, the others stay until they are deleted manually"
    surge = as_dict(strategy.get("rollingUpdate")).get("maxSurge")
    order = "" if surge in (None, 0, "0", "0%") else ": an old pod ends when the new one is ready"
    return f"an update is in progress, {updated} of {desired} are new{order}"


def is_stuck(daemonset: Raw, cluster: Cluster) -> bool:
    """Return whether a pod of a DaemonSet fails to start, though an old pod may be ready."""
    return any(_fails(pod) for pod in cluster.pods or () if is_owner(daemonset, pod))


def _fails(pod: Mapping[str, Any]) -> bool:
    """Whether a container cannot start, or has restarted and is not ready."""
    status = as_dict(pod.get("status"))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in as_dicts(status.get(kind)):
            waiting = as_dict(as_dict(container.get("state")).get("waiting"))
            restarted = bool(as_int(container.get("restartCount")))
            if as_text(waiting.get("reason")) not in _STARTING:
                return True
            if restarted and container.get("ready") is False:
                return True
    return False
