"""Why pods of a DaemonSet aren't ready, or aren't made at all."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from podgpu.doctor.cluster.objects import Cluster, Raw, display_name, name_of, namespace_of
from podgpu.doctor.cluster.scheduling_rules import is_owner

_MANY: Final = 3
_LONGEST: Final = 120
"""Characters of a message of the kubelet's."""

_LONGEST_EVENT: Final = 400
FAILED_CREATE: Final = "FailedCreate"
"""The reason of the events of a DaemonSet whose pods the API server refuses."""

_FIXES: Final = (
    ("OOMKilled", "raise the limit of memory (resources.limits.memory; see docs/sizing.md)"),
    (
        "ImagePull",
        "see that the image's name is right and the node may pull it (imagePullSecrets)",
    ),
    (
        "PodSecurity",
        "give the namespace the label pod-security.kubernetes.io/enforce: privileged",
    ),
    ("quota", "raise the ResourceQuota of the namespace"),
    ("security context constraint", "give the service account the SecurityContextConstraints"),
)


def unready_finding(daemonset: Raw, cluster: Cluster, count: str) -> Finding:
    """Return what keeps pods from being ready.

    Args:
        daemonset: whose they are.
        cluster: what was fetched.
        count: how many are ready, for people.
    """
    check = CHECKS["cluster.daemonset"]
    pods = [pod for pod in cluster.pods or () if is_owner(daemonset, pod)]
    waiting = [told for pod in pods if (told := _waiting_reason(pod))]
    reasons = waiting[:_MANY]
    if len(waiting) > _MANY:
        reasons.append(f"and {len(waiting) - _MANY} more")
    if missing := missing_pods(daemonset):
        reasons.append(f"{missing} are not made{_refused(daemonset, cluster)}")
    few = f": {'; '.join(reasons)}" if reasons else ""
    mends = [mend for word, mend in _FIXES if word in few]
    mends.append(
        f"kubectl -n {namespace_of(daemonset)} describe pod, describe daemonset and logs "
        "--previous tell more; podgpu doctor in such a pod looks at its node"
    )
    return check.warning(display_name(daemonset), count + few, "; ".join(mends))


def missing_pods(daemonset: Raw) -> int:
    """Return how many pods are wanted and not there; 0 if that isn't known.

    By the controller's own count: of pods a list may have had a part alone.
    """
    status = as_dict(daemonset.get("status"))
    wanted = as_int(status.get("desiredNumberScheduled"))
    made = as_int(status.get("currentNumberScheduled"))
    return 0 if wanted is None or made is None else max(0, int(wanted - made))


def _refused(daemonset: Raw, cluster: Cluster) -> str:
    """Return why pods can't be made, by the newest event that says so."""
    told = [
        (_moment(event), as_text(event.get("message")))
        for event in cluster.events or ()
        if as_text(event.get("reason")) == FAILED_CREATE
        and as_text(as_dict(event.get("involvedObject")).get("name")) == name_of(daemonset)
        and namespace_of(event) == namespace_of(daemonset)
    ]
    return f": {line(max(told)[1], _LONGEST_EVENT)}" if told else ""


def _moment(event: Mapping[str, Any]) -> str:
    """Return when an event happened last; as the API has it, texts sort as their times do."""
    series = as_text(as_dict(event.get("series")).get("lastObservedTime"))
    return max(series, as_text(event.get("lastTimestamp")), as_text(event.get("eventTime")))


def _waiting_reason(pod: Mapping[str, Any]) -> str:
    """Return what a pod waits for and on which node; empty if it doesn't."""
    status = as_dict(pod.get("status"))
    why = next(_reasons(status), "")
    if not why and status.get("phase") in ("Pending", "Failed"):
        said = as_text(status.get("reason")) or as_text(_unscheduled(status))
        why = f"is {as_text(status.get('phase'))} {line(said, _LONGEST)}".rstrip()
    if not why:
        return ""
    node = as_text(as_dict(pod.get("spec")).get("nodeName"))
    return f"{name_of(pod)}{f' on {node}' if node else ''} {why}"


def _reasons(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield why containers aren't ready, those first that go before the others."""
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
        said = f"{as_text(waiting.get('reason'))} {line(as_text(waiting.get('message')), _LONGEST)}"
        yield which + said.rstrip() + (f" ({past})" if past else "")
    elif container.get("ready") is False:
        what = "has ended" if ended else "runs and is not ready"
        yield f"{which}{what}" + (f" ({past})" if past else "")


def _last_termination(ended: Mapping[str, Any], restarts: int) -> str:
    """Return how a container ended last, and how often."""
    words = []
    if ended:
        code = as_int(ended.get("exitCode"))
        status = "" if code is None else f", status {code}"
        words.append(f"ended by {line(as_text(ended.get('reason')) or 'itself', 60)}{status}")
    if restarts:
        words.append(f"{restarts} restarts")
    return ", ".join(words)


def _unscheduled(status: Mapping[str, Any]) -> object:
    for condition in as_dicts(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("message")
    return ""
