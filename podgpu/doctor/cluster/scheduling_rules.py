"""Kubernetes' scheduling rules: whether selectors, affinity and tolerations allow a pod on a node.

The rules are those for LabelSelector, NodeSelectorTerm and Toleration in the API reference of 1.34.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.kube.json_access import as_dict, as_dicts, as_text
from podgpu.doctor.cluster.objects import Raw, labels_of, name_of, namespace_of

_EXCLUDING: Final = frozenset({"NoSchedule", "NoExecute"})
_TOLERATED: Final = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    )
)
"""Taints that the DaemonSet controller tolerates; the last one on the host network only."""

_DISCOVER: Final = (
    "let node feature discovery or GPU feature discovery label the nodes that have GPUs"
)


def matches(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; an empty one matches all, a missing one nothing."""
    if not isinstance(selector, dict):
        return False
    wanted = as_dict(selector.get("matchLabels"))
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _fits(expression, labels) for expression in as_dicts(selector.get("matchExpressions"))
    )


def is_owner(daemonset: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a DaemonSet owns a pod, by owner reference, else by the selector."""
    if namespace_of(pod) != namespace_of(daemonset):
        return False
    metadata = as_dict(pod.get("metadata"))
    uid = as_text(as_dict(daemonset.get("metadata")).get("uid"))
    for owner in as_dicts(metadata.get("ownerReferences")):
        if uid and owner.get("controller") is True:
            return as_text(owner.get("uid")) == uid
    return matches(as_dict(daemonset.get("spec")).get("selector"), labels_of(pod))


def selector_text(selector: object) -> str:
    """Return a label selector as a query parameter; empty if it selects nothing in particular."""
    wanted = as_dict(as_dict(selector).get("matchLabels"))
    parts = [f"{key}={value}" for key, value in wanted.items() if isinstance(value, str)]
    for each in as_dicts(as_dict(selector).get("matchExpressions")):
        key, values = as_text(each.get("key")), ",".join(_values(each))
        match each.get("operator"):
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
            case _:
                pass
    return ",".join(parts)


def _values(expression: Mapping[str, Any]) -> list[str]:
    raw = expression.get("values")
    return [value for value in raw if isinstance(value, str)] if isinstance(raw, list) else []


def scheduling_obstacles(
    spec: Mapping[str, Any], node: Mapping[str, Any], *, gpus: bool = True
) -> list[tuple[str, str]]:
    """Return what keeps a DaemonSet's pod off a node, with the fix of each; empty if nothing does.

    Args:
        spec: pod spec.
        node: the Node.
        gpus: whether the node is known to have GPUs; if not, the fix does not name its labels.
    """
    labels, name = labels_of(node), name_of(node)
    found = []
    for key, value in as_dict(spec.get("nodeSelector")).items():
        if labels.get(key) != value:
            has = f"{key}={labels[key]}" if key in labels else "no such label"
            fix = _label(key, value, node, gpus=gpus)
            found.append((f"nodeSelector wants {key}={value}, but the node has {has}", fix))
    if (wanted := _required(spec)) and not any(_term(term, labels, name) for term in wanted):
        shown = " or ".join(map(_shown, wanted))
        fix = "give the node such labels, or change affinity"
        found.append((f"affinity wants {shown}", fix))
    tolerations = as_dicts(spec.get("tolerations"))
    for taint in as_dicts(as_dict(node.get("spec")).get("taints")):
        if not _tolerated(taint, tolerations):
            shown = f"{_pair(taint)}:{as_text(taint.get('effect'))}"
            key = as_text(taint.get("key"))
            fix = f"add the toleration {{key: {key}, operator: Exists}}"
            if not gpus:
                fix = f"{_DISCOVER}; if those nodes have this taint, {fix}"
            found.append((f"the node has the taint {shown}, which is not tolerated", fix))
    return found


def _label(key: str, value: object, node: Mapping[str, Any], *, gpus: bool) -> str:
    if gpus:
        return f"kubectl label node {name_of(node)} {key}={value}, or change nodeSelector"
    return f"{_DISCOVER}, or label them {key}={value}, or change nodeSelector"


def _required(spec: Mapping[str, Any]) -> Sequence[Raw]:
    affinity = as_dict(as_dict(spec.get("affinity")).get("nodeAffinity"))
    required = as_dict(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    return as_dicts(required.get("nodeSelectorTerms"))


def _term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = as_dicts(term.get("matchExpressions")), as_dicts(term.get("matchFields"))
    if not expressions and not fields:
        return False  # an empty term selects nothing
    return all(_fits(each, labels) for each in expressions) and all(
        _fits(each, {"metadata.name": name}) for each in fields
    )


def _fits(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key = as_text(expression.get("key"))
    values = _values(expression)
    has = labels.get(key)
    match expression.get("operator"):
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(has or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False


def _shown(term: Mapping[str, Any]) -> str:
    parts = []
    for each in (*as_dicts(term.get("matchExpressions")), *as_dicts(term.get("matchFields"))):
        values = each.get("values")
        text = f" ({', '.join(map(str, values))})" if isinstance(values, list) and values else ""
        parts.append(f"{as_text(each.get('key'))} {as_text(each.get('operator'))}{text}")
    return " and ".join(parts) or "nothing"


def _tolerated(taint: Mapping[str, Any], tolerations: Sequence[Raw]) -> bool:
    if as_text(taint.get("effect")) not in _EXCLUDING or as_text(taint.get("key")) in _TOLERATED:
        return True
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists  # all keys
    if toleration.get("key") != taint.get("key"):
        return False
    return exists or as_text(toleration.get("value")) == as_text(taint.get("value"))


def _pair(taint: Mapping[str, Any]) -> str:
    value = as_text(taint.get("value"))
    return f"{as_text(taint.get('key'))}={value}" if value else as_text(taint.get("key"))
