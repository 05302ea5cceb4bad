"""Whether a monitor of podgpu selects a metrics page of podgpu."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.kube.json_access import as_dict, as_dicts, as_text
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    labels_of,
    namespace_of,
    template_of,
)
from podgpu.doctor.cluster.scheduling_rules import matches

_ENDPOINTS: Final = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}
_NUMBERED: Final = ("targetPort", "portNumber")
"""Fields that give a port by its number; such an endpoint needs no port name."""

_SELECTOR: Final = "set its selector to the labels of podgpu's {kind}, as the chart does"


def target_problem(monitor: Mapping[str, Any], cluster: Cluster) -> tuple[str, str] | None:
    """Return why a monitor selects no metrics page of podgpu, and the fix; None if it does.

    None too if that is unknown, because Services cannot be listed.
    """
    ours = cluster.podgpus()
    if not ours:
        return None
    seen = [each for each in ours if _reaches(monitor, namespace_of(each))]
    if not seen:
        where = ", ".join(sorted({namespace_of(each) for each in ours}))
        fix = f"set namespaceSelector: {{matchNames: [{where}]}} in it, or move it there"
        return f"does not select podgpu's namespace: {where}", fix
    if monitor.get("kind") == "PodMonitor":
        return _of_pods(monitor, seen)
    return None if cluster.services is None else _of_services(monitor, seen, cluster.services)


def _reaches(monitor: Mapping[str, Any], namespace: str) -> bool:
    """Whether a monitor selects a namespace: its own, or those of its namespaceSelector."""
    selector = as_dict(as_dict(monitor.get("spec")).get("namespaceSelector"))
    if selector.get("any") is True:
        return True
    names = selector.get("matchNames")
    if isinstance(names, list) and names:
        return namespace in names
    return namespace == namespace_of(monitor)


def _of_pods(monitor: Mapping[str, Any], daemonsets: Sequence[Raw]) -> tuple[str, str] | None:
    selector = as_dict(monitor.get("spec")).get("selector")
    found = [each for each in daemonsets if matches(selector, labels_of(template_of(each)))]
    if not found:
        return "selects no pod of podgpu", _SELECTOR.format(kind="pods")
    containers = [
        container
        for each in found
        for container in as_dicts(as_dict(template_of(each).get("spec")).get("containers"))
    ]
    return _port(monitor, display_name(found[0]), containers)


def _of_services(
    monitor: Mapping[str, Any], daemonsets: Sequence[Raw], services: Sequence[Raw]
) -> tuple[str, str] | None:
    selector = as_dict(monitor.get("spec")).get("selector")
    found = [each for each in services if matches(selector, labels_of(each))]
    found = [each for each in found if any(_selects_pods(each, to) for to in daemonsets)]
    if not found:
        return "selects no Service of podgpu", _SELECTOR.format(kind="Service")
    return _port(monitor, display_name(found[0]), [as_dict(each.get("spec")) for each in found])


def _selects_pods(service: Mapping[str, Any], daemonset: Raw) -> bool:
    """Whether a Service selects the pods of a DaemonSet."""
    wanted = as_dict(as_dict(service.get("spec")).get("selector"))
    return (
        namespace_of(service) == namespace_of(daemonset)
        and bool(wanted)
        and matches({"matchLabels": wanted}, labels_of(template_of(daemonset)))
    )


def _port(
    monitor: Mapping[str, Any], subject: str, owners: Sequence[Mapping[str, Any]]
) -> tuple[str, str] | None:
    """Return a problem and its fix if no endpoint names one of the ports of `owners`."""
    endpoints = as_dicts(as_dict(monitor.get("spec")).get(_ENDPOINTS[as_text(monitor.get("kind"))]))
    there = sorted({as_text(port.get("name")) for each in owners for port in _ports(each)} - {""})
    wanted = [as_text(each.get("port")) for each in endpoints]
    numbered = any(each.get(key) is not None for each in endpoints for key in _NUMBERED)
    if not endpoints or numbered or set(wanted) & set(there):
        return None
    names = ", ".join(there) or "no named port"
    observed = f"names the port {', '.join(wanted)}, but {subject} has {names}"
    return observed, f"set port in it to one of the ports of {subject}"


def _ports(owner: Mapping[str, Any]) -> list[Raw]:
    return as_dicts(owner.get("ports"))
