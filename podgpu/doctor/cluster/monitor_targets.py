"""What a monitor of podgpu's selects: whether Prometheus would find a page behind it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.kube.json_access import items, table, text
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    labels_of,
    namespace_of,
    place_of,
    template_of,
)
from podgpu.doctor.cluster.scheduling_rules import matches

_ENDPOINTS: Final = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}
_NUMBERED: Final = ("targetPort", "portNumber")
"""A port that is given so needs no name."""

_SELECTOR: Final = "set its selector to the labels of podgpu's {kind}, as the chart does"


def fault(monitor: Mapping[str, Any], cluster: Cluster) -> tuple[str, str] | None:
    """Return why a monitor leads to no page of podgpu's, and what mends that; None if it does.

    None too where that can't be told, since Services can't be listed.
    """
    ours = cluster.podgpus()
    if not ours:
        return None
    seen = [each for each in ours if _reaches(monitor, namespace_of(each))]
    if not seen:
        where = ", ".join(sorted({namespace_of(each) for each in ours}))
        mend = f"set namespaceSelector: {{matchNames: [{where}]}} in it, or move it there"
        return f"looks into other namespaces than podgpu's: {where}", mend
    if monitor.get("kind") == "PodMonitor":
        return _of_pods(monitor, seen)
    return None if cluster.services is None else _of_services(monitor, seen, cluster.services)


def _reaches(monitor: Mapping[str, Any], namespace: str) -> bool:
    """Whether a monitor looks into a namespace: its own, unless its namespaceSelector says more."""
    selector = table(table(monitor.get("spec")).get("namespaceSelector"))
    if selector.get("any") is True:
        return True
    names = selector.get("matchNames")
    if isinstance(names, list) and names:
        return namespace in names
    return namespace == namespace_of(monitor)


def _of_pods(monitor: Mapping[str, Any], daemonsets: Sequence[Raw]) -> tuple[str, str] | None:
    selector = table(monitor.get("spec")).get("selector")
    found = [each for each in daemonsets if matches(selector, labels_of(template_of(each)))]
    if not found:
        return "selects no pod of podgpu's", _SELECTOR.format(kind="pods")
    containers = [
        container
        for each in found
        for container in items(table(template_of(each).get("spec")).get("containers"))
    ]
    return _port(monitor, place_of(found[0]), containers)


def _of_services(
    monitor: Mapping[str, Any], daemonsets: Sequence[Raw], services: Sequence[Raw]
) -> tuple[str, str] | None:
    selector = table(monitor.get("spec")).get("selector")
    found = [each for each in services if matches(selector, labels_of(each))]
    found = [each for each in found if any(_leads(each, to) for to in daemonsets)]
    if not found:
        return "selects no Service of podgpu's", _SELECTOR.format(kind="Service")
    return _port(monitor, place_of(found[0]), [table(each.get("spec")) for each in found])


def _leads(service: Mapping[str, Any], daemonset: Raw) -> bool:
    """Whether a Service leads to the pods of a DaemonSet."""
    wanted = table(table(service.get("spec")).get("selector"))
    return (
        namespace_of(service) == namespace_of(daemonset)
        and bool(wanted)
        and matches({"matchLabels": wanted}, labels_of(template_of(daemonset)))
    )


def _port(
    monitor: Mapping[str, Any], place: str, owners: Sequence[Mapping[str, Any]]
) -> tuple[str, str] | None:
    """Return a fault if no endpoint names one of the ports that `owners` list."""
    endpoints = items(table(monitor.get("spec")).get(_ENDPOINTS[text(monitor.get("kind"))]))
    there = sorted({text(port.get("name")) for each in owners for port in _ports(each)} - {""})
    wanted = [text(each.get("port")) for each in endpoints]
    numbered = any(each.get(key) is not None for each in endpoints for key in _NUMBERED)
    if not endpoints or numbered or set(wanted) & set(there):
        return None
    saw = (
        f"names the port {', '.join(wanted)}, and {place} has {', '.join(there) or 'none by name'}"
    )
    return saw, f"set port in it to one of those of {place}"


def _ports(owner: Mapping[str, Any]) -> list[Raw]:
    return items(owner.get("ports"))
