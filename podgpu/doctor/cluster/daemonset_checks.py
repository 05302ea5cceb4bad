"""Why podgpu's DaemonSet wants no pods, or its pods don't run."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import as_dict, as_int, as_text
from podgpu.doctor.cluster.node_gpus import has_gpus
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    first_few,
    name_of,
    template_of,
)
from podgpu.doctor.cluster.rollout import is_stuck, update_progress
from podgpu.doctor.cluster.scheduling_rules import scheduling_obstacles
from podgpu.doctor.cluster.unready_pods import unready_finding

_MANY: Final = 3


def check_daemonsets(cluster: Cluster) -> list[Finding]:
    """Check `cluster.daemonset` and `cluster.runtimeclass` for each DaemonSet of podgpu's."""
    check = CHECKS["cluster.daemonset"]
    if cluster.daemonsets is None:
        return [check.skip("DaemonSets", "they can't be listed")]
    podgpus = cluster.podgpus()
    if not podgpus:
        where = f"in {cluster.namespace}" if cluster.namespace else "in any namespace"
        mend = "install it (helm install podgpu deploy/chart), or name its --namespace"
        return [check.failure("DaemonSets", f"podgpu has none {where}", mend)]
    return [
        finding
        for each in podgpus
        for finding in (*_scheduled(each, cluster), _runtime_class(each, cluster))
    ]


def _scheduled(daemonset: Raw, cluster: Cluster) -> list[Finding]:
    check, place = CHECKS["cluster.daemonset"], display_name(daemonset)
    status = as_dict(daemonset.get("status"))
    desired = as_int(status.get("desiredNumberScheduled")) or 0
    spec = as_dict(template_of(daemonset).get("spec"))
    gpus = [node for node in cluster.nodes or () if has_gpus(node)]
    if desired == 0:
        return [_no_pods_wanted(place, spec, gpus, cluster)]
    found = _excluded_nodes(place, spec, gpus)
    ready = as_int(status.get("numberReady")) or 0
    count, update = f"{ready} of {desired} pods are ready", update_progress(daemonset)
    if update:
        count += f"; {update}"
    if ready < desired or (update and is_stuck(daemonset, cluster)):
        found.append(unready_finding(daemonset, cluster, count))
    return found or [check.ok(place, count)]


def _excluded_nodes(subject: str, spec: Raw, gpus: Sequence[Raw]) -> list[Finding]:
    """Return a warning for each reason why nodes with GPUs are left out, the commonest first."""
    check = CHECKS["cluster.daemonset"]
    reasons: dict[str, list[str]] = {}
    mends: dict[str, str] = {}
    for node in gpus:
        if stands := scheduling_obstacles(spec, node):
            why = "; ".join(why for why, _ in stands)
            reasons.setdefault(why, []).append(name_of(node))
            mends.setdefault(why, "; ".join(mend for _, mend in stands))
    by_count = sorted(reasons.items(), key=lambda each: -len(each[1]))
    found = []
    for why, names in by_count[:_MANY]:
        saw = f"leaves out {first_few(names)}, which {_has(names)} GPUs: {why}"
        mend = mends[why] + ("" if len(names) == 1 else f"; so for all {len(names)} of them")
        found.append(check.warning(subject, saw, mend))
    if rest := by_count[_MANY:]:
        names = [name for _, each in rest for name in each]
        saw = f"leaves out {first_few(names)} with GPUs for {len(rest)} further reasons"
        found.append(check.warning(subject, saw, "mend the others first, and look again"))
    return found


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _no_pods_wanted(subject: str, spec: Raw, gpus: Sequence[Raw], cluster: Cluster) -> Finding:
    """Say why no pod is wanted: what stands in the way on most nodes, those with GPUs first."""
    check = CHECKS["cluster.daemonset"]
    nodes = gpus or cluster.nodes or ()
    if not nodes:
        saw = "wants no pods, and no node can be seen"
        return check.failure(subject, saw, "see that the kubeconfig may list nodes")
    reasons: Counter[str] = Counter()
    mends: dict[str, str] = {}
    for node in nodes:
        for why, mend in scheduling_obstacles(spec, node, gpus=bool(gpus)):
            reasons[why] += 1
            mends.setdefault(why, mend)
    kind = "nodes with GPUs" if gpus else "nodes, of which none says it has a GPU"
    if not reasons:
        saw = f"wants no pods yet, though nothing keeps them off {len(nodes)} {kind}"
        mend = "see kubectl describe of it: it may be new, or the controller manager is away"
        return check.failure(subject, saw, mend)
    shown = reasons.most_common(_MANY)
    told = "; ".join(f"{why} ({count} of {len(nodes)})" for why, count in shown)
    wanted = list(dict.fromkeys(mends[why] for why, _ in shown))
    if not gpus:
        # Whether a node is one to tolerate is not known before it says that it has GPUs.
        wanted = [mend for mend in wanted if "toleration" not in mend] or wanted
    return check.failure(
        subject, f"wants no pods: on {len(nodes)} {kind}: {told}", "; ".join(wanted)
    )


def _runtime_class(daemonset: Raw, cluster: Cluster) -> Finding:
    check, place = CHECKS["cluster.runtimeclass"], display_name(daemonset)
    wanted = as_text(as_dict(template_of(daemonset).get("spec")).get("runtimeClassName"))
    if not wanted:
        return check.skip(place, "names no RuntimeClass: the node's default runtime is taken")
    if cluster.runtimeclasses is None:
        return check.skip(place, "RuntimeClasses can't be listed")
    names = sorted(map(name_of, cluster.runtimeclasses))
    if wanted in names:
        return check.ok(place, f"the RuntimeClass {wanted} is there")
    saw = f"names the RuntimeClass {wanted}, and there is none; those there are: "
    mend = (
        f"make a RuntimeClass {wanted} with the handler that NVIDIA's container toolkit has in the "
        "runtime (the GPU operator does), or set runtimeClassName to one that is there, or to none "
        "where NVIDIA's runtime is the default"
    )
    return check.failure(place, saw + (", ".join(names) or "none"), mend)
