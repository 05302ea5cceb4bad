"""Fetch the objects of a cluster and run all checks of it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_runner import Examination, run
from pipeline.diagnostics.context import OpenSession
from podgpu.doctor.cluster import (
    daemonset_checks,
    exporter_checks,
    extender_checks,
    monitor_checks,
    network_policies,
    node_gpus,
)
from podgpu.doctor.cluster.checks import CHECKS
from podgpu.doctor.cluster.object_fetcher import Fetcher
from podgpu.doctor.cluster.objects import Cluster

_SECONDS: Final = 180.0
"""More than the time limits of the credentials and of lists that follow each other, in total."""

SECONDS: Final = 2 * _SECONDS
"""Time limit for fetching and checking together."""

_QUERY_SECONDS: Final = 30.0
"""Seconds for the requests after the lists; with these the total stays below the limit."""

_TIMEOUT_FIX: Final = (
    "check that the API server responds (kubectl get nodes), and the network to it"
)
_CHECKS: Final[Sequence[tuple[str, Callable[[Cluster], list[Finding]]]]] = (
    ("DaemonSets", daemonset_checks.check_daemonsets),
    ("Nodes", node_gpus.check_nodes),
    ("monitors", monitor_checks.check_monitors),
    ("exporters", exporter_checks.check_exporters),
)


async def diagnose(kube: OpenSession, kubeconfig: Path | None, namespace: str) -> list[Finding]:
    """Fetch a cluster's objects and check them.

    Args:
        kube: opens a session with an API server.
        kubeconfig: its credentials; None for those of the pod in which podgpu runs.
        namespace: podgpu's namespace; empty for any.
    """
    fetched: list[tuple[Cluster, list[Finding]]] = []

    async def fetch() -> list[Finding]:
        found, cluster, queried = await _fetched(kube, kubeconfig, namespace)
        if cluster is not None:
            fetched.append((cluster, queried))
        return found

    findings = await run([Examination("the API server", fetch, timeout_fix=_TIMEOUT_FIX)], _SECONDS)
    for cluster, queried in fetched:
        examinations = [
            Examination(name, partial(_async, check, cluster)) for name, check in _CHECKS
        ]
        findings += await run(examinations, _SECONDS)
        findings += queried
    return findings


async def _async(check: Callable[[Cluster], list[Finding]], cluster: Cluster) -> list[Finding]:
    return check(cluster)


async def _fetched(
    kube: OpenSession, kubeconfig: Path | None, namespace: str
) -> tuple[list[Finding], Cluster | None, list[Finding]]:
    """Return the findings about the server, its objects, and findings of further requests."""
    check = CHECKS["cluster.server"]
    place = str(kubeconfig or "the pod's service account")
    try:
        async with kube(kubeconfig) as api:
            fetcher = Fetcher(api)
            cluster = await fetcher.cluster(namespace)
            examinations = [
                Examination(
                    "scheduler extenders",
                    partial(extender_checks.check_extenders, api, cluster),
                    timeout_fix=_TIMEOUT_FIX,
                ),
                Examination(
                    "NetworkPolicies",
                    partial(network_policies.check_policies, api, cluster),
                    timeout_fix=_TIMEOUT_FIX,
                ),
            ]
            queried = await run(examinations, _QUERY_SECONDS)
    except TransientError as error:
        fix = "check --kubeconfig, that its server is reachable, and that its token is valid"
        return [check.failure(place, str(error), fix)], None, []
    # The lists are fetched concurrently, so sort the findings for a stable order.
    found = sorted(fetcher.findings, key=lambda finding: finding.subject)
    return found or [check.ok(place, "responds, and allows all lists")], cluster, queried
