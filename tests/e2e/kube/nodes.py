"""Nodes that exist only as API objects, for the scheduler.

No kubelet runs their pods, so a pod that is bound to such a node stays Pending.
"""

from collections.abc import Mapping

from tests.e2e.kube.api import Api, Object

_OURS = "podgpu-e2e"
"""A label."""


def add(api: Api, name: str, resources: Mapping[str, str]) -> Object:
    """Create a node with these resources and room for a hundred pods.

    Args:
        resources: quantities by name, such as `{"cpu": "4", "memory": "8Gi"}`.
    """
    api.create({"kind": "Node", "metadata": {"name": name, "labels": {_OURS: "yes"}}})
    # The server adds a taint to each new node, which a controller would remove.
    api.patch("Node", name, {"spec": {"taints": None}})
    whole = {"pods": "100", **resources}
    status = {
        "capacity": whole,
        "allocatable": whole,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return api.patch("Node", name, {"status": status}, sub="status")


def remove_all(api: Api) -> None:
    """Remove all nodes that were created here, with their pods."""
    made = {node["metadata"]["name"] for node in api.list("Node", labelSelector=_OURS)}
    for name in made:  # nodes first, so that no further pod is bound to them
        api.delete("Node", name)
    for pod in api.list("Pod") if made else ():
        if pod["spec"].get("nodeName") in made:
            # No kubelet would confirm the end of the pod.
            api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
