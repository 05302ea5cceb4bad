"""Nodes that are objects alone, for a scheduler to choose from: nobody runs their pods.

A pod that is bound to one stays Pending. For the scheduler it has what it asks for all the same.
"""

from collections.abc import Mapping

from tests.e2e.kube.api import Api, Object

_OURS = "podgpu-e2e"
"""A label."""


def add(api: Api, name: str, resources: Mapping[str, str]) -> Object:
    """Make a node that has so much of everything; a hundred pods fit on it.

    Args:
        resources: quantities by name, such as `{"cpu": "4", "memory": "8Gi"}`.
    """
    api.create({"kind": "Node", "metadata": {"name": name, "labels": {_OURS: "yes"}}})
    # The server itself puts one on each new node, and nobody would take it away.
    api.patch("Node", name, {"spec": {"taints": None}})
    whole = {"pods": "100", **resources}
    status = {
        "capacity": whole,
        "allocatable": whole,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return api.patch("Node", name, {"status": status}, sub="status")


def remove_all(api: Api) -> None:
    """Remove every node that was made here, with the pods on it."""
    made = {node["metadata"]["name"] for node in api.list("Node", labelSelector=_OURS)}
    for name in made:  # first, so that no further pod is bound there
        api.delete("Node", name)
    for pod in api.list("Pod") if made else ():
        if pod["spec"].get("nodeName") in made:
            # No kubelet would ever say that it has ended.
            api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
