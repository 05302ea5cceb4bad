"""What the readers of annotations use of a pod: its containers, annotations and requests."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from pipeline.model import PodContainer

_NATIVE: Final = "kubernetes.io/"

_QUANTITY: Final = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+]?[0-9]{1,2})?"
)
_DECIMAL: Final = {"": 0, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# The unit of a resource: hundredths of GPUs in total, hundredths of each GPU, or an amount on one
# GPU. All other resources count GPUs.
_HUNDREDTHS: Final = {
    "koordinator.sh/gpu",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "kubernetes.io/gpu",
    "kubernetes.io/gpu-core",
    "kubernetes.io/gpu-memory-ratio",
}
_HUNDREDTHS_OF_EACH: Final = {
    "nvidia.com/gpucores",
    "volcano.sh/vgpu-cores",
    "aliyun.com/gpu-core.percentage",
}
_AMOUNT_ON_ONE: Final = {
    "koordinator.sh/gpu-memory",
    "kubernetes.io/gpu-memory",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/gpu-memory",
}


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the reader of an annotation may use of a pod.

    Attributes:
        annotations: the pod's annotations; values may have any type.
        containers: the pod's containers, init containers first.
        node: name of the node that the pod is bound to; empty if unknown.
        requested: amounts by resource, as text, by name of the container. If limit and request
            differ, this is the limit. Empty if unknown.
        resources: resources of the scheduler whose annotation is read; None for all extended
            resources.
        labels: the pod's labels; values may have any type.
    """

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, Any]
    containers: tuple[PodContainer, ...]
    node: str = ""
    requested: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    resources: Collection[str] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)

    def names(self, *, init: bool = False) -> list[str]:
        """Return the names of the app containers, in the order in which schedulers number them.

        Args:
            init: whether init containers are included, before the others.
        """
        kinds = {"init", "sidecar", "app"} if init else {"app"}
        return [container.name for container in self.containers if container.kind in kinds]

    def requests_resource(self, container: str) -> bool:
        """Return whether a container requests one of `resources`; True if unknown."""
        if not self.requested:
            return True
        return any(
            name in self.resources
            if self.resources is not None
            else "/" in name and _NATIVE not in name
            for name, amount in self.requested.get(container, {}).items()
            if amount != "0"
        )


class Request(NamedTuple):
    """What a container or a pod requests from a scheduler.

    Attributes:
        number: maximum number of GPUs.
        share: share of each GPU, in (0, 1]; None if unknown.
    """

    number: int
    share: float | None


def amount(text: str) -> Fraction:
    """Return the value of a quantity in Kubernetes' notation; 0 if it is invalid."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return Fraction(0)
    value, unit = Fraction(found[1].rstrip(".")), found[2] or ""
    if unit in _BINARY:
        return value * (1 << _BINARY[unit])
    exponent = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    scale = Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)
    return value * scale


def requested(facts: PodFacts, resources: Collection[str], container: str = "") -> Request | None:
    """Return what a container requests from a scheduler; None if it requests nothing.

    The request of a pod is the largest sum of what its containers request at the same time, as
    Kubernetes calculates it. 50 hundredths of a GPU and 50 hundredths are one GPU, not two halves.

    Args:
        facts: what is known of the pod.
        resources: resources of the scheduler.
        container: name of the container; empty for the whole pod.
    """
    amounts = facts.requested
    if container:
        return _request_of(_amounts(amounts.get(container, {}), resources))
    kinds = {one.name: one.kind for one in facts.containers}
    running: dict[str, Fraction] = {}
    most: dict[str, Fraction] = {}
    for name, requests in amounts.items():  # init containers first
        for resource, quantity in _amounts(requests, resources).items():
            at_once = running.get(resource, Fraction(0)) + quantity
            most[resource] = max(most.get(resource, at_once), at_once)
            # An init container ends before the next one starts, which can use its devices.
            if kinds.get(name) != "init":
                running[resource] = at_once
    return _request_of(most)


def _amounts(requests: Mapping[str, str], resources: Collection[str]) -> dict[str, Fraction]:
    """Return the amounts above 0 that a container requests of a scheduler's resources."""
    found = {name: amount(requests[name]) for name in resources if name in requests}
    return {name: quantity for name, quantity in found.items() if quantity > 0}


def _request_of(wanted: Mapping[str, Fraction]) -> Request | None:
    if not wanted:
        return None
    no_counts = _HUNDREDTHS | _HUNDREDTHS_OF_EACH | _AMOUNT_ON_ONE
    number = max((ceil(n) for name, n in wanted.items() if name not in no_counts), default=0)
    hundredths = _largest(wanted, _HUNDREDTHS)
    number = number or max(1, ceil(hundredths / 100))
    share = hundredths / 100 / number or _largest(wanted, _HUNDREDTHS_OF_EACH) / 100
    return Request(number, float(share) if 0 < share <= 1 else None)


def _largest(wanted: Mapping[str, Fraction], names: Iterable[str]) -> Fraction:
    return max((wanted[name] for name in names if name in wanted), default=Fraction(0))
