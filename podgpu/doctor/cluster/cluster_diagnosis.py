"""Fetch the objects of a cluster, and run all checks of the cluster."""

from functools import partial
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.findings import WARNS, Check, Finding
from pipeline.diagnostics.check_runner import Examination, Work, run
from pipeline.diagnostics.context import OpenSession
from pipeline.kube.json_access import as_dict, as_text
from podgpu.doctor.cluster import daemonset_checks, extender_checks, monitor_checks, node_gpus
from podgpu.doctor.cluster.object_fetcher import SERVER, ObjectFetcher
from podgpu.doctor.cluster.objects import Cluster, Raw, display_name, exporter_kind, first_few

SECONDS: Final = 360.0
"""Time limit in seconds for everything: more than all other time limits together."""

_CHECK_SECONDS: Final = 30.0
"""Time limit in seconds for one check."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})

_TIMEOUT_FIX: Final = (
    "check that the API server responds (kubectl get nodes), and the network to it"
)


async def diagnose(kube: OpenSession, kubeconfig: Path | None, namespace: str) -> list[Finding]:
    """Fetch a cluster's objects and check them.

    Args:
        kube: opens a session with an API server.
        kubeconfig: path of the credentials; None for those of the pod in which podgpu runs.
        namespace: namespace of podgpu; empty for all namespaces.
    """
    work = partial(_diagnose, kube, kubeconfig, namespace)
    return await run([Examination("the API server", work, timeout_fix=_TIMEOUT_FIX)], SECONDS)


async def _diagnose(kube: OpenSession, kubeconfig: Path | None, namespace: str) -> list[Finding]:
    place = str(kubeconfig or "the pod's service account")
    try:
        async with kube(kubeconfig) as api:
            fetcher = ObjectFetcher(api)
            cluster = await fetcher.cluster(namespace)
            checks: dict[str, Work] = {
                "DaemonSets": partial(daemonset_checks.check_daemonsets, cluster),
                "Nodes": partial(node_gpus.check_nodes, cluster),
                "monitors": partial(monitor_checks.check_monitors, cluster),
                "exporters": partial(check_exporters, cluster),
                "scheduler extenders": partial(extender_checks.check_extenders, api, cluster),
                "NetworkPolicies": partial(extender_checks.check_policies, api, cluster),
            }
            examinations = [
                Examination(name, work, timeout_fix=_TIMEOUT_FIX) for name, work in checks.items()
            ]
            checked = await run(examinations, _CHECK_SECONDS)
    except TransientError as error:
        fix = "check --kubeconfig, that its server is reachable, and that its token is valid"
        return [SERVER.failure(place, str(error), fix)]
    # The lists are fetched concurrently, so sort the findings for a stable order.
    found = sorted(fetcher.findings, key=lambda finding: finding.subject)
    return [*(found or [SERVER.ok(place, "responds, and allows all lists")]), *checked]


def check_exporters(cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.exporters`."""
    check, place = Check("cluster.exporters", WARNS), "pods of DaemonSets"
    if cluster.daemonsets is None or cluster.pods is None:
        return [check.skip(place, "cannot be listed")]
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
    """Return whether a pod has ended, was evicted, or is being deleted."""
    deleted = as_dict(pod.get("metadata")).get("deletionTimestamp")
    return bool(deleted) or as_text(as_dict(pod.get("status")).get("phase")) in _ENDED
