"""Find the workload that created a pod."""

import sys
from collections.abc import Mapping
from typing import Any

from pipeline.kube.json_access import as_dict, as_text, controller_of

_HASH = "pod-template-hash"


def workload_of(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of a pod's workload; empty texts without one.

    A pod names only its direct owner. A Deployment is derived from the ReplicaSet's name, which is
    the Deployment's name and a hash that the pod has as a label. A Job of a CronJob cannot be
    distinguished from another Job. The Node, which owns mirror pods, is not a workload.
    """
    owner = controller_of(metadata)
    kind, name = as_text(owner.get("kind")), as_text(owner.get("name"))
    if kind == "Node":
        return "", ""
    template = as_text(as_dict(metadata.get("labels")).get(_HASH))
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    return sys.intern(kind), sys.intern(name)
