"""Check `cluster.exporters`: whether two GPU exporters run on one node."""

from typing import Final

from pipeline.component.findings import WARNS, Check, Finding
from pipeline.kube.json_access import as_dict, as_text
from podgpu.doctor.cluster.objects import Cluster, Raw, display_name, exporter_kind, first_few

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def check_exporters(cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.exporters`."""
    check, place = Check("cluster.exporters", WARNS), "pods of DaemonSets"
    if cluster.daemonsets is None or cluster.pods is None:
        return [check.skip(place, "they cannot be listed")]
    by_node: dict[str, set[str]] = {}
    for daemonset in cluster.daemonsets:
        if exporter_kind(daemonset) is None:
            continue
        for pod in cluster.pods_of(daemonset):
            node = as_text(as_dict(pod.get("spec")).get("nodeName"))
            if node and not _has_ended(pod):
                by_node.setdefault(node, set()).add(display_name(daemonset))
    both = {node: found for node, found in sorted(by_node.items()) if len(found) > 1}
    if not both:
        return [check.ok(place, f"at most one GPU exporter on each of {len(by_node)} nodes")]
    names = sorted(set().union(*both.values()))
    fix = (
        "remove one of them (with the GPU operator: dcgmExporter.enabled=false), or run them on "
        "different nodes by a label; if podgpu reads dcgm-exporter's page (source dcgm), scrape "
        "only one of the two"
    )
    return [check.warning(place, f"{' and '.join(names)} both run on {first_few(list(both))}", fix)]


def _has_ended(pod: Raw) -> bool:
    """Whether a pod has ended, was evicted, or is being deleted."""
    deleted = as_dict(pod.get("metadata")).get("deletionTimestamp")
    return bool(deleted) or as_text(as_dict(pod.get("status")).get("phase")) in _ENDED
