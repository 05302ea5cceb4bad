"""Pods of the demo as the API server sends them."""

import hashlib
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from tests.demo.cast import Container

NODE: Final = "demo"


def identity(container: Container) -> tuple[str, str]:
    """Return the uid of a pod and the id of its container: the same in every run."""
    name = f"{container.namespace}/{container.pod}"
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), hashlib.sha256(name.encode()).hexdigest()


def _owners(container: Container) -> list[dict[str, Any]]:
    """Return the workload that created a pod: its name is the pod's without the number."""
    name, _, number = container.pod.rpartition("-")
    if not number.isdecimal():
        return []
    kind = "Job" if container.namespace == "batch" else "StatefulSet"
    return [{"kind": kind, "name": name, "controller": True}]


def raw_pod(
    container: Container, since: datetime, phase: str, resources: Mapping[str, int]
) -> dict[str, Any]:
    uid, key = identity(container)
    stamp = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    state: dict[str, Any] = {"running": {"startedAt": stamp}}
    if phase == "Succeeded":
        state = {"terminated": {"exitCode": 0, "startedAt": stamp, "finishedAt": stamp}}
    status = {"name": container.name, "containerID": f"containerd://{key}", "state": state}
    limits = {name: str(count) for name, count in resources.items()}
    return {
        "metadata": {
            "namespace": container.namespace,
            "name": container.pod,
            "uid": uid,
            "labels": {"team": container.namespace},
            "annotations": {},
            "ownerReferences": _owners(container),
        },
        "spec": {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "containers": [{"name": container.name, "resources": {"limits": limits}}],
        },
        "status": {
            "phase": phase,
            "qosClass": "Burstable",
            "startTime": stamp,
            "containerStatuses": [status],
        },
    }
