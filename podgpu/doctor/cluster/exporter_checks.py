"""Whether two exporters of GPUs are on one node."""

from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import as_dict, as_text
from podgpu.doctor.cluster.objects import Cluster, Raw, display_name, exporter_kind, first_few
from podgpu.doctor.cluster.scheduling_rules import is_owner

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def check_exporters(cluster: Cluster) -> list[Finding]:
    """Check `cluster.exporters`."""
    check, place = CHECKS["cluster.exporters"], "pods of DaemonSets"
    if cluster.daemonsets is None or cluster.pods is None:
        return [check.skip(place, "they can't be listed")]
    by_node: dict[str, set[str]] = {}
    for daemonset in cluster.daemonsets:
        if exporter_kind(daemonset) is None:
            continue
        for pod in cluster.pods:
            node = as_text(as_dict(pod.get("spec")).get("nodeName"))
            if node and not _has_ended(pod) and is_owner(daemonset, pod):
                by_node.setdefault(node, set()).add(display_name(daemonset))
    both = {node: found for node, found in sorted(by_node.items()) if len(found) > 1}
    if not both:
        return [check.ok(place, f"one exporter of GPUs at most on each of {len(by_node)} nodes")]
    whose = sorted(set().union(*both.values()))
    mend = (
        "remove one of them (with the GPU operator: dcgmExporter.enabled=false), or keep their "
        "nodes apart by a label; where podgpu reads dcgm-exporter's page (source dcgm), scrape one "
        "of the two"
    )
    return [
        check.warning(place, f"{' and '.join(whose)} are both on {first_few(list(both))}", mend)
    ]


def _has_ended(pod: Raw) -> bool:
    """Whether it has ended or was evicted, or makes room for its successor."""
    going = as_dict(pod.get("metadata")).get("deletionTimestamp")
    return bool(going) or as_text(as_dict(pod.get("status")).get("phase")) in _ENDED
