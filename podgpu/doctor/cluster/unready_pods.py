"""Describes pods of a DaemonSet: why they are not ready or missing, and an update's progress."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from podgpu.doctor.cluster.objects import Cluster, Raw, display_name, name_of, namespace_of

DAEMONSET: Final = Check("cluster.daemonset", BOTH)

_MAX_LISTED: Final = 3
_MAX_MESSAGE: Final = 120
"""Maximum number of characters of a message from the kubelet."""

_MAX_EVENT_MESSAGE: Final = 400
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container waits while it starts normally."""

FAILED_CREATE: Final = "FailedCreate"
"""Reason of a DaemonSet's events if its pods cannot be created."""

_FIXES: Final = (
    ("OOMKilled", "raise the memory limit (resources.limits.memory; see docs/sizing.md)"),
    (
        "ImagePull",
        "check the name of the image, and that the node may pull it (imagePullSecrets)",
    ),
    (
        "PodSecurity",
        "give the namespace the label pod-security.kubernetes.io/enforce: privileged",
    ),
    ("quota", "raise the ResourceQuota of the namespace"),
    ("security context constraint", "grant the service account the SecurityContextConstraints"),
)


def update_progress(daemonset: Raw) -> str:
    """Return the progress of an update as text for people; empty if no update is in progress.

    The API omits a count of 0 from the status.
    """
    status = as_dict(daemonset.get("status"))
    desired = as_int(status.get("desiredNumberScheduled")) or 0
    updated = as_int(status.get("updatedNumberScheduled")) or 0
    changed = as_int(as_dict(daemonset.get("metadata")).get("generation")) or 0
    if (as_int(status.get("observedGeneration")) or changed) < changed:
        return "it has just changed, and the controller manager has not processed the change yet"
    if updated >= desired:
        return ""
    strategy = as_dict(as_dict(daemonset.get("spec")).get("updateStrategy"))
    if as_text(strategy.get("type")) == "OnDelete":
        return f"{updated} of {desired} are new, the others stay until they are deleted manually"
    surge = as_dict(strategy.get("rollingUpdate")).get("maxSurge")
    order = "" if surge in (None, 0, "0", "0%") else ": an old pod ends when the new one is ready"
    return f"an update is in progress, {updated} of {desired} are new{order}"


def is_stuck(daemonset: Raw, cluster: Cluster) -> bool:
    """Return whether a container of the pods cannot start, or is not ready after a restart."""
    return any(
        as_text(as_dict(as_dict(container.get("state")).get("waiting")).get("reason"))
        not in _STARTING
        or (container.get("ready") is False and bool(as_int(container.get("restartCount"))))
        for pod in cluster.pods_of(daemonset)
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in as_dicts(as_dict(pod.get("status")).get(kind))
    )


def unready_finding(daemonset: Raw, cluster: Cluster, count: str) -> Finding:
    """Return a warning with the reasons why pods are not ready or not created.

    Args:
        daemonset: the owner of the pods.
        cluster: the objects that were fetched.
        count: number of ready pods, for people.
    """
    waiting = [why for pod in cluster.pods_of(daemonset) if (why := _waiting_reason(pod))]
    reasons = waiting[:_MAX_LISTED]
    if len(waiting) > _MAX_LISTED:
        reasons.append(f"and {len(waiting) - _MAX_LISTED} more")
    if missing := missing_pods(daemonset):
        reasons.append(f"{missing} are not created{_refused(daemonset, cluster)}")
    shown = f": {'; '.join(reasons)}" if reasons else ""
    fixes = [fix for text, fix in _FIXES if text in shown]
    fixes.append(
        f"see kubectl -n {namespace_of(daemonset)} describe pod, describe daemonset and logs "
        "--previous; run podgpu doctor in such a pod to check its node"
    )
    return DAEMONSET.warning(display_name(daemonset), count + shown, "; ".join(fixes))


def missing_pods(daemonset: Raw) -> int:
    """Return how many pods the controller has still to create; 0 if that is unknown.

    The controller's count is used, since a list of pods may be incomplete.
    """
    status = as_dict(daemonset.get("status"))
    wanted = as_int(status.get("desiredNumberScheduled"))
    current = as_int(status.get("currentNumberScheduled"))
    return 0 if wanted is None or current is None else max(0, int(wanted - current))


def _refused(daemonset: Raw, cluster: Cluster) -> str:
    """Return why pods cannot be created, from the newest event about it; empty if unknown."""
    messages = [
        (_last_time(event), as_text(event.get("message")))
        for event in cluster.events or ()
        if as_text(event.get("reason")) == FAILED_CREATE
        and as_text(as_dict(event.get("involvedObject")).get("name")) == name_of(daemonset)
        and namespace_of(event) == namespace_of(daemonset)
    ]
    return f": {line(max(messages)[1], _MAX_EVENT_MESSAGE)}" if messages else ""


def _last_time(event: Mapping[str, Any]) -> str:
    """Return the time of an event's last occurrence, as text in the API's sortable format."""
    series = as_text(as_dict(event.get("series")).get("lastObservedTime"))
    return max(series, as_text(event.get("lastTimestamp")), as_text(event.get("eventTime")))


def _waiting_reason(pod: Mapping[str, Any]) -> str:
    """Return the pod's name and node, and why the pod is not ready; empty if it is ready."""
    status = as_dict(pod.get("status"))
    why = next(_reasons(status), "")
    if not why and status.get("phase") in ("Pending", "Failed"):
        unscheduled = (
            as_text(each.get("message"))
            for each in as_dicts(status.get("conditions"))
            if each.get("type") == "PodScheduled" and each.get("status") == "False"
        )
        reason = as_text(status.get("reason")) or next(unscheduled, "")
        why = f"is {as_text(status.get('phase'))} {line(reason, _MAX_MESSAGE)}".rstrip()
    if not why:
        return ""
    node = as_text(as_dict(pod.get("spec")).get("nodeName"))
    return f"{name_of(pod)}{f' on {node}' if node else ''} {why}"


def _reasons(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield why each container is not ready, init containers first."""
    for container in as_dicts(status.get("initContainerStatuses")):
        done = as_dict(as_dict(container.get("state")).get("terminated")).get("exitCode") == 0
        if not done and container.get("ready") is not True:
            yield from _reason(container, f"init container {as_text(container.get('name'))} ")
    for container in as_dicts(status.get("containerStatuses")):
        yield from _reason(container, "")


def _reason(container: Mapping[str, Any], which: str) -> Iterator[str]:
    state = as_dict(container.get("state"))
    waiting, ended = as_dict(state.get("waiting")), as_dict(state.get("terminated"))
    before = as_dict(as_dict(container.get("lastState")).get("terminated"))
    past = _last_termination(ended or before, as_int(container.get("restartCount")) or 0)
    if waiting:
        message = line(as_text(waiting.get("message")), _MAX_MESSAGE)
        why = f"{as_text(waiting.get('reason'))} {message}"
        yield which + why.rstrip() + (f" ({past})" if past else "")
    elif container.get("ready") is False:
        state_text = "has ended" if ended else "runs and is not ready"
        yield f"{which}{state_text}" + (f" ({past})" if past else "")


def _last_termination(ended: Mapping[str, Any], restarts: int) -> str:
    """Return a text about how a container ended last, and how often it was restarted."""
    parts = []
    if ended:
        code = as_int(ended.get("exitCode"))
        status = "" if code is None else f", status {code}"
        parts.append(f"ended: {line(as_text(ended.get('reason')) or 'unknown reason', 60)}{status}")
    if restarts:
        parts.append(f"{restarts} restarts")
    return ", ".join(parts)
