"""Check `cluster.servicemonitor`: what monitors of podgpu select, and what selects the monitors."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.component.findings import WARNS, Check, Finding
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    labels_of,
    matches,
    name_of,
    namespace_of,
    template_of,
)

_CHECK: Final = Check("cluster.servicemonitor", WARNS)

_NAME: Final = "app.kubernetes.io/name"
_FIELDS: Final = {"ServiceMonitor": "serviceMonitor", "PodMonitor": "podMonitor"}
_NUMBERED: Final = ("targetPort", "portNumber")
"""Fields with a port number, instead of a port name."""


def check_monitors(cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.servicemonitor` for each ServiceMonitor and PodMonitor of podgpu."""
    if cluster.monitors is None:
        why = "the Prometheus operator has none, or they cannot be listed"
        return [_CHECK.skip("ServiceMonitors, PodMonitors", why)]
    ours = _podgpu_monitors(cluster)
    if not ours:
        why = "none is for podgpu: Prometheus must discover podgpu in another way"
        return [_CHECK.skip("ServiceMonitors, PodMonitors", why)]
    spaces = {name_of(each): labels_of(each) for each in cluster.namespaces or ()}
    found, valid = [], []
    for each in ours:
        if wrong := _target_problem(each, cluster):
            found.append(_CHECK.warning(display_name(each), *wrong))
        else:
            valid.append(each)
    if not valid:
        return found
    if not cluster.prometheuses:
        why = "no Prometheus object exists to select them, or they cannot be listed"
        return [*found, _CHECK.skip(", ".join(map(display_name, valid)), why)]
    return [*found, *(_monitor(each, cluster.prometheuses, spaces) for each in valid)]


def _podgpu_monitors(cluster: Cluster) -> list[Raw]:
    """Return the monitors of podgpu: by their names, their labels, or the pods they select."""
    templates = [labels_of(template_of(each)) for each in cluster.podgpus()]
    found = []
    for monitor in cluster.monitors or ():
        selector = as_dict(as_dict(monitor.get("spec")).get("selector"))
        # A monitor that selects everything is not specific to podgpu.
        selects = bool(selector) and any(matches(selector, labels) for labels in templates)
        named = labels_of(monitor).get(_NAME) == "podgpu" or "podgpu" in name_of(monitor)
        if (selects or named) and cluster.namespace in ("", namespace_of(monitor)):
            found.append(monitor)
    return found


def _monitor(
    monitor: Raw, prometheuses: Sequence[Raw], spaces: Mapping[str, Mapping[str, str]]
) -> Finding:
    place = display_name(monitor)
    refusals = {display_name(each): _refusal(monitor, each, spaces) for each in prometheuses}
    selecting = [name for name, why in refusals.items() if not why]
    if selecting:
        return _CHECK.ok(place, f"selected by {', '.join(selecting)}")
    text = "; ".join(f"{name} {why}" for name, why in refusals.items())
    fix = _fix_for(monitor, prometheuses)
    return _CHECK.warning(place, f"no Prometheus selects it: {text}", fix)


def _refusal(
    monitor: Raw, prometheus: Mapping[str, Any], spaces: Mapping[str, Mapping[str, str]]
) -> str:
    """Return why a Prometheus does not select a monitor; empty if it selects the monitor.

    According to the operator's API reference, a missing selector selects nothing, and a missing
    namespace selector selects the namespace of the Prometheus object.
    """
    spec, kind = as_dict(prometheus.get("spec")), _FIELDS[as_text(monitor.get("kind"))]
    selector = spec.get(f"{kind}Selector")
    if not isinstance(selector, dict):
        return f"selects none ({kind}Selector is not set)"
    if not matches(selector, labels_of(monitor)):
        return (
            f"requires labels {_shown(selector)}, but the monitor has {_pairs(labels_of(monitor))}"
        )
    where, space = spec.get(f"{kind}NamespaceSelector"), namespace_of(monitor)
    if not isinstance(where, dict):
        if space == namespace_of(prometheus):
            return ""
        return f"selects only in its own namespace ({kind}NamespaceSelector is not set)"
    if not matches(where, spaces.get(space, {})):
        return f"requires namespaces with labels {_shown(where)}, which {space} does not have"
    return ""


def _fix_for(monitor: Raw, prometheuses: Sequence[Raw]) -> str:
    kind = _FIELDS[as_text(monitor.get("kind"))]
    for each in prometheuses:
        selector = as_dict(as_dict(each.get("spec")).get(f"{kind}Selector"))
        wanted = as_dict(selector.get("matchLabels"))
        if wanted and not matches(selector, labels_of(monitor)):
            pairs = ", ".join(f"{key}: {value}" for key, value in wanted.items())
            return f"set additionalLabels: {{{pairs}}} in the chart, or give the monitor this label"
    return (
        "move it into the namespace of the Prometheus, give its namespace the labels, or set "
        f"{kind}Selector: {{}} and {kind}NamespaceSelector: {{}} in the Prometheus"
    )


def _shown(selector: Mapping[str, Any]) -> str:
    wanted = _pairs(as_dict(selector.get("matchLabels")))
    return wanted if not selector.get("matchExpressions") else f"{wanted} and expressions"


def _pairs(labels: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) or "none"


def _target_problem(monitor: Mapping[str, Any], cluster: Cluster) -> tuple[str, str] | None:
    """Return why a monitor finds no metrics page of podgpu, and the fix.

    None if the monitor finds one, or if this is unknown because Services cannot be listed.
    """
    ours = cluster.podgpus()
    if not ours:
        return None
    seen = [each for each in ours if _reaches(monitor, namespace_of(each))]
    if not seen:
        where = ", ".join(sorted({namespace_of(each) for each in ours}))
        fix = f"set namespaceSelector: {{matchNames: [{where}]}} in it, or move it there"
        return f"does not select podgpu's namespace: {where}", fix
    spec = as_dict(monitor.get("spec"))
    if monitor.get("kind") == "PodMonitor":
        what, labels, endpoints = "pod", "pods", spec.get("podMetricsEndpoints")
        found = [
            each for each in seen if matches(spec.get("selector"), labels_of(template_of(each)))
        ]
    elif cluster.services is None:
        return None
    else:
        what, labels, endpoints = "Service", "Service", spec.get("endpoints")
        found = [
            each
            for each in cluster.services
            if matches(spec.get("selector"), labels_of(each))
            and any(_selects_pods(each, daemonset) for daemonset in seen)
        ]
    if found:
        return _port_problem(as_dicts(endpoints), found)
    fix = f"set its selector to the labels of podgpu's {labels}, as the chart does"
    return f"selects no {what} of podgpu", fix


def _reaches(monitor: Mapping[str, Any], namespace: str) -> bool:
    """Return whether a monitor selects a namespace: its own, or as its namespaceSelector says."""
    selector = as_dict(as_dict(monitor.get("spec")).get("namespaceSelector"))
    if selector.get("any") is True:
        return True
    names = selector.get("matchNames")
    if isinstance(names, list) and names:
        return namespace in names
    return namespace == namespace_of(monitor)


def _selects_pods(service: Mapping[str, Any], daemonset: Raw) -> bool:
    """Return whether a Service selects the pods of a DaemonSet."""
    wanted = as_dict(as_dict(service.get("spec")).get("selector"))
    return (
        namespace_of(service) == namespace_of(daemonset)
        and bool(wanted)
        and matches({"matchLabels": wanted}, labels_of(template_of(daemonset)))
    )


def _port_problem(
    endpoints: Sequence[Mapping[str, Any]], found: Sequence[Raw]
) -> tuple[str, str] | None:
    """Return a problem and its fix if no endpoint has a port number or the name of a known port."""
    ports = [
        as_text(port.get("name"))
        for each in found
        for owner in (as_dict(each.get("spec")), *_containers(each))
        for port in as_dicts(owner.get("ports"))
    ]
    wanted = [as_text(each.get("port")) for each in endpoints]
    numbered = any(each.get(key) is not None for each in endpoints for key in _NUMBERED)
    if not endpoints or numbered or set(wanted) & set(ports) - {""}:
        return None
    names, subject = ", ".join(sorted(set(ports) - {""})), display_name(found[0])
    observed = f"names the port {', '.join(wanted)}, but {subject} has {names or 'no named port'}"
    return observed, f"set port in it to one of the ports of {subject}"


def _containers(daemonset: Raw) -> list[Raw]:
    return as_dicts(as_dict(template_of(daemonset).get("spec")).get("containers"))
