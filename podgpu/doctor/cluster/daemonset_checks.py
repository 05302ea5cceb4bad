"""Check podgpu's DaemonSets: why they have no pods on nodes with GPUs, or why pods are not ready.

The DaemonSet controller decides on which nodes pods run. This module only explains that decision:
it compares labels and taints of a node with a pod spec, and otherwise names the required affinity.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from podgpu.doctor.cluster.node_gpus import has_gpus
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    first_few,
    labels_of,
    name_of,
    template_of,
)
from podgpu.doctor.cluster.unready_pods import DAEMONSET, is_stuck, unready_finding, update_progress

_MAX_LISTED: Final = 3
_EXCLUDING: Final = frozenset({"NoSchedule", "NoExecute"})
_TOLERATED: Final = "node.kubernetes.io/"
"""Prefix of the taints that the DaemonSet controller tolerates."""

_DISCOVER: Final = (
    "let node feature discovery or GPU feature discovery label the nodes that have GPUs"
)


def check_daemonsets(cluster: Cluster) -> list[Finding]:
    """Run the checks `cluster.daemonset` and `cluster.runtimeclass` for podgpu's DaemonSets."""
    if cluster.daemonsets is None:
        return [DAEMONSET.skip("DaemonSets", "cannot be listed")]
    podgpus = cluster.podgpus()
    if not podgpus:
        where = f"in {cluster.namespace}" if cluster.namespace else "in any namespace"
        fix = "install podgpu (helm install podgpu deploy/chart), or give its --namespace"
        return [DAEMONSET.failure("DaemonSets", f"there is no DaemonSet of podgpu {where}", fix)]
    return [
        finding
        for each in podgpus
        for finding in (*_scheduled(each, cluster), _runtime_class(each, cluster))
    ]


def _scheduled(daemonset: Raw, cluster: Cluster) -> list[Finding]:
    place = display_name(daemonset)
    status = as_dict(daemonset.get("status"))
    desired = as_int(status.get("desiredNumberScheduled")) or 0
    gpus = [node for node in cluster.nodes or () if has_gpus(node)]
    if desired == 0:
        return [_no_pods_wanted(daemonset, gpus, cluster)]
    found = _excluded_nodes(daemonset, desired, gpus, cluster)
    ready = as_int(status.get("numberReady")) or 0
    count, update = f"{ready} of {desired} pods are ready", update_progress(daemonset)
    if update:
        count += f"; {update}"
    if ready < desired or (update and is_stuck(daemonset, cluster)):
        found.append(unready_finding(daemonset, cluster, count))
    return found or [DAEMONSET.ok(place, count)]


def _obstacles(
    daemonset: Raw, nodes: Sequence[Raw], *, gpus: bool = True
) -> list[tuple[str, str, list[str]]]:
    """Return what keeps pods off nodes: reason, fix and nodes; the most frequent reason first."""
    found: dict[str, tuple[str, str, list[str]]] = {}
    spec = as_dict(template_of(daemonset).get("spec"))
    for node in nodes:
        for why, fix in scheduling_obstacles(spec, node, gpus=gpus):
            found.setdefault(why, (why, fix, []))[2].append(name_of(node))
    return sorted(found.values(), key=lambda each: -len(each[2]))


def _excluded_nodes(
    daemonset: Raw, desired: int, gpus: Sequence[Raw], cluster: Cluster
) -> list[Finding]:
    """Return warnings about GPU nodes on which the DaemonSet does not run, one for each reason.

    Reasons after the third share one warning. There is none while pods are still missing.
    """
    subject = display_name(daemonset)
    used = [as_dict(pod.get("spec")).get("nodeName") for pod in cluster.pods_of(daemonset)]
    if len(used) < desired:
        return []  # some pods are not created yet, or the list is incomplete
    obstacles = _obstacles(daemonset, [node for node in gpus if name_of(node) not in used])
    found = []
    for why, fix, names in obstacles[:_MAX_LISTED]:
        which = "which has GPUs" if len(names) == 1 else "which have GPUs"
        same = "" if len(names) == 1 else f"; the same for all {len(names)} of them"
        observed = f"does not run on {first_few(names)}, {which}: {why}"
        found.append(DAEMONSET.warning(subject, observed, fix + same))
    if rest := obstacles[_MAX_LISTED:]:
        names = list(dict.fromkeys(name for _, _, each in rest for name in each))
        observed = f"does not run on {first_few(names)} with GPUs for {len(rest)} further reasons"
        fix = "fix the others first, then run podgpu doctor again"
        found.append(DAEMONSET.warning(subject, observed, fix))
    return found


def _no_pods_wanted(daemonset: Raw, gpus: Sequence[Raw], cluster: Cluster) -> Finding:
    """Return a failure with the most frequent reasons why the DaemonSet has no pods.

    Only nodes with GPUs are examined, or all nodes if no node is known to have GPUs.
    """
    subject = display_name(daemonset)
    nodes = gpus or cluster.nodes or ()
    if not nodes:
        observed = "no pod is scheduled, and no node is visible"
        return DAEMONSET.failure(subject, observed, "check that the kubeconfig may list nodes")
    kind = "nodes with GPUs" if gpus else "nodes, none of which reports a GPU"
    shown = _obstacles(daemonset, nodes, gpus=bool(gpus))[:_MAX_LISTED]
    if not shown:
        observed = f"no pod is scheduled yet, although nothing prevents it on {len(nodes)} {kind}"
        fix = "see kubectl describe: it may be a new DaemonSet, or no controller manager runs"
        return DAEMONSET.failure(subject, observed, fix)
    text = "; ".join(f"{why} ({len(names)} of {len(nodes)})" for why, _, names in shown)
    wanted = list(dict.fromkeys(fix for _, fix, _ in shown))
    if not gpus:
        # It is not known yet which nodes have GPUs, so do not advise to tolerate their taints.
        wanted = [fix for fix in wanted if "toleration" not in fix] or wanted
    return DAEMONSET.failure(
        subject, f"no pod is scheduled: on {len(nodes)} {kind}: {text}", "; ".join(wanted)
    )


def _runtime_class(daemonset: Raw, cluster: Cluster) -> Finding:
    check, place = Check("cluster.runtimeclass", FAILS), display_name(daemonset)
    wanted = as_text(as_dict(template_of(daemonset).get("spec")).get("runtimeClassName"))
    if not wanted:
        return check.skip(place, "names no RuntimeClass: the node's default runtime is used")
    if cluster.runtimeclasses is None:
        return check.skip(place, "RuntimeClasses cannot be listed")
    names = sorted(map(name_of, cluster.runtimeclasses))
    if wanted in names:
        return check.ok(place, f"the RuntimeClass {wanted} exists")
    observed = f"names the RuntimeClass {wanted}, which does not exist; existing ones: "
    fix = (
        f"create a RuntimeClass {wanted} with the handler of NVIDIA's container toolkit in the "
        "runtime (the GPU operator does), or set runtimeClassName to an existing one, or to none "
        "if NVIDIA's runtime is the default"
    )
    return check.failure(place, observed + (", ".join(names) or "none"), fix)


def scheduling_obstacles(
    spec: Mapping[str, Any], node: Mapping[str, Any], *, gpus: bool = True
) -> list[tuple[str, str]]:
    """Return what keeps a DaemonSet's pod off a node, and the fix of each; empty if unknown.

    Args:
        spec: spec of the pod.
        node: a Node on which the DaemonSet controller creates no pod.
        gpus: whether the node is known to have GPUs; if not, no fix names this node.
    """
    taints = [
        each
        for each in as_dicts(as_dict(node.get("spec")).get("taints"))
        if as_text(each.get("effect")) in _EXCLUDING
        and not as_text(each.get("key")).startswith(_TOLERATED)
    ]
    found = [*_missing_labels(spec, node, gpus=gpus), *_untolerated(spec, taints, gpus=gpus)]
    affinity = _affinity(spec)
    if found or not (affinity or taints):
        return found
    causes = [f"affinity requires {affinity}"] if affinity else []
    causes += ["a toleration has another value or effect than the node's taint"] if taints else []
    return [(", or ".join(causes), "give the node such labels, or change affinity and tolerations")]


def _missing_labels(
    spec: Mapping[str, Any], node: Mapping[str, Any], *, gpus: bool
) -> Iterator[tuple[str, str]]:
    labels = labels_of(node)
    for key, value in as_dict(spec.get("nodeSelector")).items():
        if labels.get(key) == value:
            continue
        has = f"{key}={labels[key]}" if key in labels else "no such label"
        fix = f"{_DISCOVER}, or label them {key}={value}"
        if gpus:
            fix = f"kubectl label node {name_of(node)} {key}={value}"
        why = f"nodeSelector requires {key}={value}, but the node has {has}"
        yield why, f"{fix}, or change nodeSelector"


def _untolerated(
    spec: Mapping[str, Any], taints: list[Raw], *, gpus: bool
) -> Iterator[tuple[str, str]]:
    # A toleration without a key tolerates all taints. Values and effects are not compared here.
    tolerated = {as_text(each.get("key")) for each in as_dicts(spec.get("tolerations"))}
    for taint in taints:
        key, value = as_text(taint.get("key")), as_text(taint.get("value"))
        if not tolerated.isdisjoint({key, ""}):
            continue
        shown = f"{key}={value}" if value else key
        fix = f"add the toleration {{key: {key}, operator: Exists}}"
        if not gpus:
            fix = f"{_DISCOVER}; if those nodes have this taint, {fix}"
        yield f"the node has the taint {shown}:{taint['effect']}, which is not tolerated", fix


def _affinity(spec: Mapping[str, Any]) -> str:
    """Return the required node affinity as text for people; empty if there is none."""
    affinity = as_dict(as_dict(spec.get("affinity")).get("nodeAffinity"))
    required = as_dict(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    return " or ".join(map(_shown, as_dicts(required.get("nodeSelectorTerms"))))


def _shown(term: Mapping[str, Any]) -> str:
    parts = []
    for each in (*as_dicts(term.get("matchExpressions")), *as_dicts(term.get("matchFields"))):
        values = each.get("values")
        text = f" ({', '.join(map(str, values))})" if isinstance(values, list) and values else ""
        parts.append(f"{as_text(each.get('key'))} {as_text(each.get('operator'))}{text}")
    return " and ".join(parts) or "an empty term, which matches no node"
