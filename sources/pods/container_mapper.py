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
    timestamps: Timestamps,
    *,
    ended: bool,
    deleting: bool,
) -> Iterator[PodContainer]:
    """Yield the containers of a pod, init containers first.

    Args:
        spec: pod spec.
        status: pod status.
        timestamps: converts timestamps.
        ended: whether the pod has ended.
        deleting: whether the pod is being deleted, so that no container starts again.
    """
    policy = as_text(spec.get("restartPolicy"))
    for spec_key, status_key, kind in _LISTS:
        states = {as_text(state.get("name")): state for state in as_dicts(status.get(status_key))}
        for container in as_dicts(spec.get(spec_key)):
            name = sys.intern(as_text(container.get("name")))
            state = states.get(name, {})
            identity = _first(state, "containerID")
            own = as_text(container.get("restartPolicy"))
            sidecar = kind == "init" and own == "Always"
            yield PodContainer(
                name,
                "sidecar" if sidecar else kind,
                identity.partition("://")[2] or identity,
                # A waiting container has the time of its last start in its last state.
                timestamps.parse(_first(state, "startedAt")),
                ended or _ended(container, state, kind, own or policy, deleting=deleting),
            )


def _first(state: Mapping[str, Any], key: str) -> str:
    """Return a text from the status of a container, or from its newest state that has it."""
    now, last = as_dict(state.get("state")), as_dict(state.get("lastState"))
    parts = (state, now.get("running"), now.get("terminated"), last.get("terminated"))
    return next((found for part in parts if (found := as_text(as_dict(part).get(key)))), "")


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
