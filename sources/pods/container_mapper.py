"""Map the containers of a pod, from the pod's spec and the status that the kubelet reports."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pipeline.kube.json_access import as_dict, as_dicts, as_text
from pipeline.model import PodContainer
from sources.pods.timestamps import Timestamps

_Kind = Literal["init", "app", "ephemeral"]
_LISTS: Final[tuple[tuple[str, str, _Kind], ...]] = (
    ("initContainers", "initContainerStatuses", "init"),
    ("containers", "containerStatuses", "app"),
    ("ephemeralContainers", "ephemeralContainerStatuses", "ephemeral"),
)


def containers(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    *,
    pod_ended: bool,
    deleting: bool,
    timestamps: Timestamps,
) -> Iterator[PodContainer]:
    """Yield the containers of a pod, init containers first.

    Args:
        spec: pod spec.
        status: pod status.
        pod_ended: whether the pod has ended.
        deleting: whether the pod is being deleted, so that no container starts again.
        timestamps: converts timestamps.
    """
    policy = as_text(spec.get("restartPolicy"))
    for spec_key, status_key, kind in _LISTS:
        states = {as_text(state.get("name")): state for state in as_dicts(status.get(status_key))}
        for container in as_dicts(spec.get(spec_key)):
            name = sys.intern(as_text(container.get("name")))
            state = states.get(name, {})
            own = as_text(container.get("restartPolicy"))
            sidecar = kind == "init" and own == "Always"
            yield PodContainer(
                name,
                "sidecar" if sidecar else kind,
                _id(state),
                timestamps.parse(_started(state)),
                pod_ended or _ended(container, state, kind, own or policy, deleting=deleting),
            )


def _id(state: Mapping[str, Any]) -> str:
    for part in _states(state):
        if found := as_text(part.get("containerID")):
            return found.partition("://")[2] or found
    return ""


def _started(state: Mapping[str, Any]) -> str:
    """Return when the container last started; a waiting container has that in its last state."""
    for part in _states(state):
        if found := as_text(part.get("startedAt")):
            return found
    return ""


def _states(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield state
    now = as_dict(state.get("state"))
    yield as_dict(now.get("running"))
    yield as_dict(now.get("terminated"))
    yield as_dict(as_dict(state.get("lastState")).get("terminated"))


def _ended(
    container: Mapping[str, Any],
    state: Mapping[str, Any],
    kind: _Kind,
    policy: str,
    *,
    deleting: bool,
) -> bool:
    terminated = as_dict(state.get("state")).get("terminated")
    if terminated is None:
        return False
    if deleting or kind == "ephemeral":
        return True
    if policy == "Never":
        # With rules, the kubelet may still start it again.
        return not as_dicts(container.get("restartPolicyRules"))
    # A sidecar has its own restart policy, Always, and keeps running.
    lasting = policy == "Always" and (kind == "app" or "restartPolicy" in container)
    return not lasting and as_dict(terminated).get("exitCode") == 0
