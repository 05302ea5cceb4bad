"""Looks at a cluster."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_runner import Examination, run
from pipeline.diagnostics.check_table import CHECKS
from podgpu.doctor.cluster import (
    daemonset_checks,
    exporter_checks,
    extender_checks,
    monitor_checks,
    network_policies,
    node_gpus,
)
from podgpu.doctor.cluster.object_fetcher import Fetcher
from podgpu.doctor.cluster.objects import Cluster

_SECONDS: Final = 180.0
"""More than credentials and the lists that wait for each other may take by limits of their own."""

SECONDS: Final = 2 * _SECONDS
"""For all: what is fetched, and what is made of it."""

_ASKED: Final = 30.0
"""Seconds for what is asked after the lists; the sum stays below the limit of all."""

_LATE: Final = "see that the API server answers (kubectl get nodes), and what is on the way to it"
_CHECKS: Final[Sequence[tuple[str, Callable[[Cluster], list[Finding]]]]] = (
    ("DaemonSets", daemonset_checks.check_daemonsets),
    ("Nodes", node_gpus.check_nodes),
    ("monitors", monitor_checks.check_monitors),
    ("exporters", exporter_checks.check_exporters),
)

Connect = Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]


async def diagnose(kube: Connect, kubeconfig: Path | None, namespace: str) -> list[Finding]:
    """Fetch a cluster's objects and look at them.

    Args:
        kube: joins a session with an API server.
        kubeconfig: its credentials; None for those of the pod that podgpu runs in.
        namespace: podgpu's; empty for any.
    """
    fetched: list[tuple[Cluster, list[Finding]]] = []

    async def fetch() -> list[Finding]:
        found, cluster, asked = await _fetched(kube, kubeconfig, namespace)
        if cluster is not None:
            fetched.append((cluster, asked))
        return found

    findings = await run([Examination("the API server", fetch, late=_LATE)], _SECONDS)
    for cluster, asked in fetched:
        looks = [Examination(name, partial(_async, look, cluster)) for name, look in _CHECKS]
        findings += await run(looks, _SECONDS)
        findings += asked
    return findings


async def _async(check: Callable[[Cluster], list[Finding]], cluster: Cluster) -> list[Finding]:
    return check(cluster)


async def _fetched(
    kube: Connect, kubeconfig: Path | None, namespace: str
) -> tuple[list[Finding], Cluster | None, list[Finding]]:
    """Return what is said of the server, its objects, and what it was asked about them."""
    check = CHECKS["cluster.server"]
    place = str(kubeconfig or "the pod's service account")
    try:
        async with kube(kubeconfig) as api:
            fetcher = Fetcher(api)
            cluster = await fetcher.cluster(namespace)
            looks = [
                Examination(
                    "scheduler extenders",
                    partial(extender_checks.check_extenders, api, cluster),
                    late=_LATE,
                ),
                Examination(
                    "NetworkPolicies",
                    partial(network_policies.check_policies, api, cluster),
                    late=_LATE,
                ),
            ]
            asked = await run(looks, _ASKED)
    except TransientError as error:
        mend = "see that --kubeconfig is right, its server can be reached and its token is fresh"
        return [check.failure(place, str(error), mend)], None, []
    # The lists come side by side, so that the order of their faults is none.
    found = sorted(fetcher.findings, key=lambda finding: finding.subject)
    return found or [check.ok(place, "answers, and lets all be listed")], cluster, asked
