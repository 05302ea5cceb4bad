"""Manifests of pods, which tests can change before they create the pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.e2e.kube.api import Object
from tests.e2e.kube.apiserver import NODE
from tests.e2e.kube.images import IMAGE

GPU = "nvidia.com/gpu"

HOLD = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait")
"""Runs until SIGTERM, and then ends immediately."""

STUBBORN = ("/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done")
"""Runs until it is killed."""


def run(script: str) -> Sequence[str]:
    """Return the command for a shell script."""
    return ("/bin/sh", "-c", script)


def container(
    name: str = "main",
    resources: Mapping[str, int] | None = None,
    *,
    command: Sequence[str] = HOLD,
    env: Mapping[str, str] | None = None,
    claims: Iterable[str] = (),
    sidecar: bool = False,
    privileged: bool = False,
) -> Object:
    """Return a container with resource limits.

    `claims` are the pod's names of its claims. A sidecar has to be an init container.
    """
    wanted: dict[str, Any] = {"limits": {key: str(n) for key, n in (resources or {}).items()}}
    if claimed := [{"name": each} for each in claims]:
        wanted["claims"] = claimed
    made: Object = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": wanted,
    }
    if sidecar:
        made["restartPolicy"] = "Always"
    if privileged:
        made["securityContext"] = {"privileged": True}
    return made


def pod(
    name: str,
    *containers: Object,
    namespace: str = "default",
    init: Iterable[Object] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    restart: str = "Always",
    grace: int = 1,
    priority_class: str | None = None,
    claims: Mapping[str, str] | None = None,
    scheduled: bool = False,
) -> Object:
    """Return a pod; by default it has one container that waits.

    `claims` has the names of ResourceClaims by the pod's names for them. The pod is bound to the
    node, unless it has claims or `scheduled` is set: then the scheduler binds it.
    """
    spec: dict[str, Any] = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": grace,
        "restartPolicy": restart,
        "tolerations": [{"operator": "Exists"}],
        "initContainers": list(init),
        "containers": list(containers) or [container()],
        "resourceClaims": [
            {"name": own, "resourceClaimName": claim} for own, claim in (claims or {}).items()
        ],
    }
    if not (scheduled or claims):
        spec["nodeName"] = NODE
    if priority_class:
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": spec,
    }


def gpu_pod(name: str, gpus: int = 1, **more: Any) -> Object:
    """Return a pod with one container that requests this many GPUs."""
    return pod(name, container(resources={GPU: gpus}), **more)
