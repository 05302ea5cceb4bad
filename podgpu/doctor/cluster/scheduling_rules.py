"""What may keep a DaemonSet's pod off a node, for people.

The DaemonSet controller decides on which nodes pods run. This module only explains its decision: it
compares the parts of a pod spec with a node that are simple to compare, and names the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.kube.json_access import as_dict, as_dicts, as_text
from podgpu.doctor.cluster.objects import Raw, labels_of, name_of

_EXCLUDING: Final = frozenset({"NoSchedule", "NoExecute"})
_TOLERATED: Final = "node.kubernetes.io/"
"""Prefix of the taints that the DaemonSet controller tolerates."""

_DISCOVER: Final = (
    "let node feature discovery or GPU feature discovery label the nodes that have GPUs"
)


def scheduling_obstacles(
    spec: Mapping[str, Any], node: Mapping[str, Any], *, gpus: bool = True
) -> list[tuple[str, str]]:
    """Return what keeps a DaemonSet's pod off a node, with the fix of each; empty if nothing can.

    Args:
        spec: pod spec.
        node: a Node on which the DaemonSet wants no pod.
        gpus: whether the node is known to have GPUs; if not, the fix does not name its labels.
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
    causes = [f"affinity wants {affinity}"] if affinity else []
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
        why = f"nodeSelector wants {key}={value}, but the node has {has}"
        yield why, f"{fix}, or change nodeSelector"


def _untolerated(
    spec: Mapping[str, Any], taints: list[Raw], *, gpus: bool
) -> Iterator[tuple[str, str]]:
    # A toleration without a key tolerates all taints.
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
    """Return the required node affinity, for people; empty if there is none."""
    affinity = as_dict(as_dict(spec.get("affinity")).get("nodeAffinity"))
    required = as_dict(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    return " or ".join(map(_shown, as_dicts(required.get("nodeSelectorTerms"))))


def _shown(term: Mapping[str, Any]) -> str:
    parts = []
    for each in (*as_dicts(term.get("matchExpressions")), *as_dicts(term.get("matchFields"))):
        values = each.get("values")
        text = f" ({', '.join(map(str, values))})" if isinstance(values, list) and values else ""
        parts.append(f"{as_text(each.get('key'))} {as_text(each.get('operator'))}{text}")
    return " and ".join(parts) or "nothing"
