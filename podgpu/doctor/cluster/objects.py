"""The objects of a cluster that are looked at, as JSON has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pipeline.kube.json_access import as_dict, as_dicts, as_text

Raw: TypeAlias = dict[str, Any]
Listed: TypeAlias = Sequence[Raw] | None
"""Objects of one kind; None if they can't be had, or there is no such kind."""

Kind: TypeAlias = Literal["podgpu", "dcgm-exporter"]

_NAME: Final = "app.kubernetes.io/name"
_APP: Final = "app"
_DCGM: Final = "dcgm-exporter"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What was fetched.

    Attributes:
        nodes: all of them.
        daemonsets: of all namespaces.
        pods: of those DaemonSets that are exporters of GPUs.
        runtimeclasses: all of them.
        slices: ResourceSlices of DRA drivers.
        namespaces: all of them; their labels are selected by.
        monitors: ServiceMonitors and PodMonitors.
        prometheuses: objects of the Prometheus operator's, agents among them.
        services: those in the namespaces of podgpu's DaemonSets.
        deployments: of all namespaces; the scheduler extender is one.
        events: of podgpu's DaemonSets that have fewer pods than they want: why they make none.
        namespace: podgpu's; empty for any.
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

    def podgpus(self) -> list[Raw]:
        """Return podgpu's DaemonSets, in the namespace that was named, if one was."""
        return [
            each
            for each in self.daemonsets or ()
            if exporter_kind(each) == "podgpu" and self.namespace in ("", namespace_of(each))
        ]


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
    """Return the pod that a DaemonSet makes."""
    return as_dict(as_dict(daemonset.get("spec")).get("template"))


def exporter_kind(daemonset: Mapping[str, Any]) -> Kind | None:
    """Return which exporter of GPUs a DaemonSet runs, if it runs one.

    Its image tells, since podgpu may have taken the place of dcgm-exporter in its chart; where an
    image is called otherwise, the usual labels do.
    """
    template = template_of(daemonset)
    names = [image_name(each) for each in as_dicts(as_dict(template.get("spec")).get("containers"))]
    if "podgpu" in names:
        return "podgpu"
    if _DCGM in names:
        return _DCGM
    labels = labels_of(daemonset) | labels_of(template)
    told = {labels.get(_NAME, ""), labels.get(_APP, "")}
    if "podgpu" in told:
        return "podgpu"
    return _DCGM if told & {_DCGM, f"nvidia-{_DCGM}"} else None


def image_name(container: Mapping[str, Any]) -> str:
    """Return the last part of the name of a container's image, without tag and digest."""
    image = as_text(container.get("image"))
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def first_few(names: Sequence[str], shown: int = 3) -> str:
    """Return a few names, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
