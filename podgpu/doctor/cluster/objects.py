"""A cluster's objects as decoded JSON, and functions that read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pipeline.kube.json_access import as_dict, as_dicts, as_text, controller_of

Raw: TypeAlias = dict[str, Any]
Listed: TypeAlias = Sequence[Raw] | None
"""Objects of one kind; None if they cannot be listed, or the cluster lacks the kind."""

Kind: TypeAlias = Literal["podgpu", "dcgm-exporter"]

_NAME: Final = "app.kubernetes.io/name"
_APP: Final = "app"
_DCGM: Final = "dcgm-exporter"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The objects of a cluster that were fetched; None for those that could not be listed.

    Attributes:
        nodes: all Nodes.
        daemonsets: DaemonSets of all namespaces.
        pods: pods of the DaemonSets that are GPU exporters.
        runtimeclasses: all RuntimeClasses.
        slices: all ResourceSlices, which DRA drivers write.
        namespaces: all Namespaces, for selectors that select by their labels.
        monitors: ServiceMonitors and PodMonitors.
        prometheuses: the Prometheus operator's Prometheus and PrometheusAgent objects.
        services: Services in the namespaces of podgpu's DaemonSets.
        deployments: Deployments of all namespaces, to find the scheduler extender.
        events: events that say why pods of podgpu's DaemonSets cannot be created.
        namespace: namespace of podgpu; empty for all namespaces.
    """

    nodes: Listed = None
    daemonsets: Listed = None
    pods: Listed = None
    runtimeclasses: Listed = None
    slices: Listed = None
    namespaces: Listed = None
    monitors: Listed = None
    prometheuses: Listed = None
    services: Listed = None
    deployments: Listed = None
    events: Listed = None
    namespace: str = field(default="", kw_only=True)

    def pods_of(self, daemonset: Raw) -> list[Raw]:
        """Return the known pods that a DaemonSet owns."""
        uid = as_text(as_dict(daemonset.get("metadata")).get("uid"))
        return [
            each
            for each in self.pods or ()
            if uid and controller_of(as_dict(each.get("metadata"))).get("uid") == uid
        ]

    def podgpus(self) -> list[Raw]:
        """Return podgpu's DaemonSets, in `namespace` if it is set."""
        return [
            each
            for each in self.daemonsets or ()
            if exporter_kind(each) == "podgpu" and self.namespace in ("", namespace_of(each))
        ]


def matches(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; an empty one matches all, a missing one nothing."""
    if not isinstance(selector, dict):
        return False
    wanted = as_dict(selector.get("matchLabels"))
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _fits(expression, labels) for expression in as_dicts(selector.get("matchExpressions"))
    )


def _fits(expression: Raw, labels: Mapping[str, str]) -> bool:
    has, values = labels.get(as_text(expression.get("key"))), expression.get("values")
    is_listed = isinstance(values, list) and has in values
    match expression.get("operator"):
        case "In":
            return is_listed
        case "NotIn":
            return not is_listed
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case _:
            return False


def labels_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return an object's labels."""
    found = as_dict(as_dict(raw.get("metadata")).get("labels"))
    return {key: value for key, value in found.items() if isinstance(value, str)}


def name_of(raw: Mapping[str, Any]) -> str:
    """Return an object's name."""
    return as_text(as_dict(raw.get("metadata")).get("name"))


def namespace_of(raw: Mapping[str, Any]) -> str:
    """Return an object's namespace."""
    return as_text(as_dict(raw.get("metadata")).get("namespace"))


def display_name(raw: Mapping[str, Any]) -> str:
    """Return an object's name with its kind and namespace, for people."""
    where = f"{namespace_of(raw)}/" if namespace_of(raw) else ""
    return f"{as_text(raw.get('kind'))} {where}{name_of(raw)}".lstrip()


def template_of(daemonset: Mapping[str, Any]) -> Raw:
    """Return the pod template of a DaemonSet or Deployment."""
    return as_dict(as_dict(daemonset.get("spec")).get("template"))


def exporter_kind(daemonset: Mapping[str, Any]) -> Kind | None:
    """Return which GPU exporter a DaemonSet runs; None if it runs none.

    The image name decides first, since podgpu may run in dcgm-exporter's chart. If no image has a
    known name, the labels decide.
    """
    template = template_of(daemonset)
    images = map(image_name, as_dicts(as_dict(template.get("spec")).get("containers")))
    labels = labels_of(daemonset) | labels_of(template)
    for names in (set(images), {labels.get(_NAME), labels.get(_APP)}):
        if "podgpu" in names:
            return "podgpu"
        if names & {_DCGM, f"nvidia-{_DCGM}"}:
            return _DCGM
    return None


def image_name(container: Mapping[str, Any]) -> str:
    """Return the last part of the name of a container's image, without tag and digest."""
    image = as_text(container.get("image"))
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def first_few(names: Sequence[str], shown: int = 3) -> str:
    """Return the first `shown` names, and how many more there are, as text."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
