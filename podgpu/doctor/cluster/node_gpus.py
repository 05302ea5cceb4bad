"""Check `cluster.gpus`: which nodes have GPUs, and how many of them they offer to pods."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pipeline.allocations.gpu_resources import DEFAULT_RESOURCES, GpuNames
from pipeline.component.findings import WARNS, Check, Finding
from pipeline.kube.json_access import as_dict, as_text
from podgpu.doctor.cluster.objects import Cluster, first_few, labels_of, name_of

_LABELS: Final[Mapping[str, str | None]] = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": None,
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
    "cloud.google.com/gke-accelerator": None,
    "k8s.amazonaws.com/accelerator": None,
    "kubernetes.azure.com/accelerator": "nvidia",
}
"""Labels of nodes with NVIDIA GPUs, with their values; None for any value. GPU feature discovery,
node feature discovery, GKE, EKS and AKS set these labels."""

_COUNT: Final = "nvidia.com/gpu.count"
_REPLICAS: Final = "nvidia.com/gpu.replicas"
_RESOURCES: Final = GpuNames(DEFAULT_RESOURCES, DEFAULT_RESOURCES)

_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_MAX_LISTED: Final = 5


def has_gpus(node: Mapping[str, Any]) -> bool:
    """Return whether a node has NVIDIA GPUs, by its labels or its capacity."""
    labels = labels_of(node)
    named = any(key in labels and value in (None, labels[key]) for key, value in _LABELS.items())
    # Without such a label, nvidia.com/hostdev says nothing about GPUs.
    return named or any(map(_RESOURCES.names_gpus, gpu_resources(node, "capacity")))


def gpu_resources(node: Mapping[str, Any], part: str) -> dict[str, int]:
    """Return the number of devices of each resource that can be GPUs.

    Args:
        node: the Node.
        part: `capacity` or `allocatable`.
    """
    found = as_dict(as_dict(node.get("status")).get(part))
    return {
        resource: count
        for resource, quantity in found.items()
        if _RESOURCES(resource)
        if (count := _count(quantity)) is not None
    }


def _count(quantity: object) -> int | None:
    """Return a quantity as a number; None if it has a suffix, which numbers of devices have not."""
    digits = as_text(quantity)
    return int(digits) if _DIGITS.fullmatch(digits) else None


def check_nodes(cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.gpus` for each node with GPUs."""
    check = Check("cluster.gpus", WARNS)
    if cluster.nodes is None:
        return [check.skip("Nodes", "cannot be listed")]
    nodes = [node for node in cluster.nodes if has_gpus(node)]
    if not nodes:
        fix = (
            "add nodes with GPUs, or let node feature discovery or the GPU operator label the "
            "nodes that have GPUs"
        )
        return [check.warning("Nodes", f"none of {len(cluster.nodes)} reports a GPU", fix)]
    claimed = {
        as_text(as_dict(each.get("spec")).get("nodeName"))
        for each in cluster.slices or ()
        if "gpu" in as_text(as_dict(each.get("spec")).get("driver"))
    }
    wrong: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if problem := _node_problem(node, by_claims=name_of(node) in claimed):
            wrong.setdefault(problem, []).append(name_of(node))
    return [
        check.warning(f"{'Node' if len(names) == 1 else 'Nodes'} {first_few(names)}", observed, fix)
        for (observed, fix), names in wrong.items()
    ] or [
        check.ok(
            "Nodes", f"{len(nodes)} have GPUs, and offer all of them: {_describe_nodes(nodes)}"
        )
    ]


def _describe_nodes(nodes: list[dict[str, Any]]) -> str:
    shown = []
    for node in nodes[:_MAX_LISTED]:
        has = ", ".join(
            f"{count} {name}" for name, count in gpu_resources(node, "capacity").items()
        )
        shown.append(f"{name_of(node)} {has or 'by claims'}")
    more = f"; and {len(nodes) - _MAX_LISTED} more" if len(nodes) > _MAX_LISTED else ""
    return "; ".join(shown) + more


def _node_problem(node: Mapping[str, Any], *, by_claims: bool) -> tuple[str, str] | None:
    """Return a problem of a node's GPUs and its fix; None if there is none."""
    capacity, free = gpu_resources(node, "capacity"), gpu_resources(node, "allocatable")
    if not any(capacity.values()):
        if by_claims:
            return None
        fix = (
            "check that the pod of the device plugin or DRA driver runs on it, and read its log: "
            "usually a runtime class or the driver is missing"
        )
        return "has GPUs according to its labels, but offers none to pods", fix
    if unhealthy := [
        f"{free.get(name, 0)} of {number} {name}"
        for name, number in capacity.items()
        if free.get(name, 0) < number
    ]:
        fix = "see the device plugin's log for unhealthy devices (XID errors), and podgpu's xid_*"
        return f"allocatable are {', '.join(unhealthy)}", fix
    labels, whole = labels_of(node), capacity.get("nvidia.com/gpu", 0)
    labelled = _count(labels.get(_COUNT)) or 0
    if labels.get(_REPLICAS, "1") in {"", "0", "1"} and 0 < whole < labelled:
        fix = "see the device plugin's log: a GPU may be lost since the node was labelled"
        return f"offers {whole} of {labelled} GPUs", fix
    return None
