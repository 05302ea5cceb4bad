"""The containers of a pod: from what is asked for and what the kubelet says of it."""

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
    over: bool,
    leaving: bool,
    moments: Timestamps,
) -> Iterator[PodContainer]:
    """Yield the containers of a pod, init containers first.

    Args:
        spec: of the pod.
        status: of the pod.
        over: the pod has ended.
        leaving: it is being deleted, so that nothing of it is started again.
        moments: for timestamps.
    """
    policy = as_text(spec.get("restartPolicy"))
    for wanted, told, kind in _LISTS:
        states = {as_text(state.get("name")): state for state in as_dicts(status.get(told))}
        for container in as_dicts(spec.get(wanted)):
            name = sys.intern(as_text(container.get("name")))
            state = states.get(name, {})
            own = as_text(container.get("restartPolicy"))
            sidecar = kind == "init" and own == "Always"
            yield PodContainer(
                name,
                "sidecar" if sidecar else kind,
                _id(state),
                moments.parse(_started(state)),
                over or _ended(container, state, kind, own or policy, leaving=leaving),
            )


def _id(state: Mapping[str, Any]) -> str:
    for told in _states(state):
        if found := as_text(told.get("containerID")):
            return found.partition("://")[2] or found
    return ""


def _started(state: Mapping[str, Any]) -> str:
    """Return when the container started last: that which waits has its last run behind it."""
    for told in _states(state):
        if found := as_text(told.get("startedAt")):
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
    leaving: bool,
) -> bool:
    terminated = as_dict(state.get("state")).get("terminated")
    if terminated is None:
        return False
    if leaving or kind == "ephemeral":
        return True
    if policy == "Never":
        # Rules may start it again all the same.
        return not as_dicts(container.get("restartPolicyRules"))
    # An init container that stays is given a policy of its own: Always.
    lasting = policy == "Always" and (kind == "app" or "restartPolicy" in container)
    return not lasting and as_dict(terminated).get("exitCode") == 0
