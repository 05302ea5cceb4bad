"""Which nodes have GPUs, and what they offer of them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import as_dict, as_text
from pipeline.model.plugin_ids import glob_matcher
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
"""By which labels a node says that it has NVIDIA GPUs, with the value that it takes; None for any.
They are those of GPU feature discovery, node feature discovery, GKE, EKS and AKS."""

_COUNT: Final = "nvidia.com/gpu.count"
_REPLICAS: Final = "nvidia.com/gpu.replicas"
_PREFIX: Final = "nvidia.com/"
_IS_GPU: Final = glob_matcher(("nvidia.com/*", "*/*gpu*"))
"""As the podresources source has it, by its default."""

_OTHERS: Final = ("amd.com/", "intel.com/")
"""Cards that podgpu has nothing to say of."""

_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_MANY: Final = 5


def has_gpus(node: Mapping[str, Any]) -> bool:
    """Whether a node has NVIDIA GPUs, by its labels or by what it offers."""
    labels = labels_of(node)
    told = any(key in labels and value in (None, labels[key]) for key, value in _LABELS.items())
    return told or bool(gpu_resources(node, "capacity"))


def gpu_resources(node: Mapping[str, Any], part: str) -> dict[str, int]:
    """Return how many devices of each GPU resource a node has, by `capacity` or `allocatable`."""
    found = as_dict(as_dict(node.get("status")).get(part))
    counts = {
        resource: _count(count)
        for resource, count in found.items()
        if _IS_GPU(resource) and not resource.startswith(_OTHERS)
    }
    return {resource: count for resource, count in counts.items() if count is not None}


def _count(quantity: object) -> int | None:
    """Return a quantity that is a plain number, as those of devices are."""
    digits = as_text(quantity)
    return int(digits) if _DIGITS.fullmatch(digits) else None


def check_nodes(cluster: Cluster) -> list[Finding]:
    """Check `cluster.gpus` for each node that has some."""
    check = CHECKS["cluster.gpus"]
    if cluster.nodes is None:
        return [check.skip("Nodes", "they can't be listed")]
    nodes = [node for node in cluster.nodes if has_gpus(node)]
    if not nodes:
        mend = (
            "add nodes with GPUs, or let node feature discovery or the GPU operator label those "
            "that have some"
        )
        return [check.warning("Nodes", f"none of {len(cluster.nodes)} says it has a GPU", mend)]
    claimed = {
        as_text(as_dict(each.get("spec")).get("nodeName"))
        for each in cluster.slices or ()
        if "gpu" in as_text(as_dict(each.get("spec")).get("driver"))
    }
    wrong: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if fault := _node_problem(node, by_claims=name_of(node) in claimed):
            wrong.setdefault(fault, []).append(name_of(node))
    return [
        check.warning(f"{'Node' if len(names) == 1 else 'Nodes'} {first_few(names)}", saw, mend)
        for (saw, mend), names in wrong.items()
    ] or [
        check.ok(
            "Nodes", f"{len(nodes)} have GPUs, and offer all of them: {_describe_nodes(nodes)}"
        )
    ]


def _describe_nodes(nodes: list[dict[str, Any]]) -> str:
    shown = []
    for node in nodes[:_MANY]:
        has = ", ".join(
            f"{count} {name}" for name, count in gpu_resources(node, "capacity").items()
        )
        shown.append(f"{name_of(node)} {has or 'by claims'}")
    more = f"; and {len(nodes) - _MANY} more" if len(nodes) > _MANY else ""
    return "; ".join(shown) + more


def _node_problem(node: Mapping[str, Any], *, by_claims: bool) -> tuple[str, str] | None:
    """Return what is wrong with a node's GPUs, and what mends it; None if nothing is."""
    capacity, free = gpu_resources(node, "capacity"), gpu_resources(node, "allocatable")
    if not any(capacity.values()):
        if by_claims:
            return None
        mend = (
            "see that the device plugin's pod, or a DRA driver's, runs on it, and its log: a "
            "runtime class or driver that is missing is the usual reason"
        )
        saw = "has GPUs by its labels, and offers none to pods"
        return saw, mend
    sick = [
        f"{free.get(name, 0)} of {n} {name}"
        for name, n in capacity.items()
        if free.get(name, 0) < n
    ]
    if sick:
        mend = "see the device plugin's log for unhealthy devices (XID errors), and podgpu's xid_*"
        return f"allocatable are {', '.join(sick)}", mend
    labels = labels_of(node)
    count, replicas = labels.get(_COUNT, ""), labels.get(_REPLICAS, "1")
    whole = capacity.get(f"{_PREFIX}gpu", 0)
    said = _count(count)
    if said is not None and replicas in {"", "0", "1"} and 0 < whole < said:
        mend = "see the device plugin's log: a GPU may have fallen off the bus since"
        return f"offers {whole} of {said} GPUs", mend
    return None
