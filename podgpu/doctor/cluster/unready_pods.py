"""Why pods of a DaemonSet aren't ready, or aren't made at all."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import items, number, table, text
from podgpu.doctor.cluster.objects import Cluster, Raw, name_of, namespace_of, place_of
from podgpu.doctor.cluster.scheduling_rules import has_made

_MANY: Final = 3
_LONGEST: Final = 120
"""Characters of a message of the kubelet's."""

_LONGEST_EVENT: Final = 400
FAILED_CREATE: Final = "FailedCreate"
"""The reason of the events of a DaemonSet whose pods the API server refuses."""

_MENDS: Final = (
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


def unready(daemonset: Raw, cluster: Cluster, count: str) -> Finding:
    """Return what keeps pods from being ready.

    Args:
        daemonset: whose they are.
        cluster: what was fetched.
        count: how many are ready, for people.
    """
    check = CHECKS["cluster.daemonset"]
    pods = [pod for pod in cluster.pods or () if has_made(daemonset, pod)]
    waiting = [told for pod in pods if (told := _waits(pod))]
    reasons = waiting[:_MANY]
    if len(waiting) > _MANY:
        reasons.append(f"and {len(waiting) - _MANY} more")
    if missing := unmade(daemonset):
        reasons.append(f"{missing} are not made{_refused(daemonset, cluster)}")
    few = f": {'; '.join(reasons)}" if reasons else ""
    mends = [mend for word, mend in _MENDS if word in few]
    mends.append(
        f"kubectl -n {namespace_of(daemonset)} describe pod, describe daemonset and logs "
        "--previous tell more; podgpu doctor in such a pod looks at its node"
    )
    return check.warning(place_of(daemonset), count + few, "; ".join(mends))


def unmade(daemonset: Raw) -> int:
    """Return how many pods are wanted and not there; 0 if that isn't known.

    By the controller's own count: of pods a list may have had a part alone.
    """
    status = table(daemonset.get("status"))
    wanted = number(status.get("desiredNumberScheduled"))
    made = number(status.get("currentNumberScheduled"))
    return 0 if wanted is None or made is None else max(0, int(wanted - made))


def _refused(daemonset: Raw, cluster: Cluster) -> str:
    """Return why pods can't be made, by the newest event that says so."""
    told = [
        (_moment(event), text(event.get("message")))
        for event in cluster.events or ()
        if text(event.get("reason")) == FAILED_CREATE
        and text(table(event.get("involvedObject")).get("name")) == name_of(daemonset)
        and namespace_of(event) == namespace_of(daemonset)
    ]
    return f": {line(max(told)[1], _LONGEST_EVENT)}" if told else ""


def _moment(event: Mapping[str, Any]) -> str:
    """Return when an event happened last; as the API has it, texts sort as their times do."""
    series = text(table(event.get("series")).get("lastObservedTime"))
    return max(series, text(event.get("lastTimestamp")), text(event.get("eventTime")))


def _waits(pod: Mapping[str, Any]) -> str:
    """Return what a pod waits for and on which node; empty if it doesn't."""
    status = table(pod.get("status"))
    why = next(_reasons(status), "")
    if not why and status.get("phase") in ("Pending", "Failed"):
        said = text(status.get("reason")) or text(_unscheduled(status))
        why = f"is {text(status.get('phase'))} {line(said, _LONGEST)}".rstrip()
    if not why:
        return ""
    node = text(table(pod.get("spec")).get("nodeName"))
    return f"{name_of(pod)}{f' on {node}' if node else ''} {why}"


def _reasons(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield why containers aren't ready, those first that go before the others."""
    for container in items(status.get("initContainerStatuses")):
        done = table(table(container.get("state")).get("terminated")).get("exitCode") == 0
        if not done and container.get("ready") is not True:
            yield from _reason(container, f"init container {text(container.get('name'))} ")
    for container in items(status.get("containerStatuses")):
        yield from _reason(container, "")


def _reason(container: Mapping[str, Any], which: str) -> Iterator[str]:
    state = table(container.get("state"))
    waiting, ended = table(state.get("waiting")), table(state.get("terminated"))
    before = table(table(container.get("lastState")).get("terminated"))
    past = _past(ended or before, number(container.get("restartCount")) or 0)
    if waiting:
        said = f"{text(waiting.get('reason'))} {line(text(waiting.get('message')), _LONGEST)}"
        yield which + said.rstrip() + (f" ({past})" if past else "")
    elif container.get("ready") is False:
        what = "has ended" if ended else "runs and is not ready"
        yield f"{which}{what}" + (f" ({past})" if past else "")


def _past(ended: Mapping[str, Any], restarts: int) -> str:
    """Return how a container ended last, and how often."""
    words = []
    if ended:
        code = number(ended.get("exitCode"))
        status = "" if code is None else f", status {code}"
        words.append(f"ended by {line(text(ended.get('reason')) or 'itself', 60)}{status}")
    if restarts:
        words.append(f"{restarts} restarts")
    return ", ".join(words)


def _unscheduled(status: Mapping[str, Any]) -> object:
    for condition in items(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("message")
    return ""
