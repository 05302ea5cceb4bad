"""What a pod requests: how many GPUs, and which group must contain them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from podgpu.extender.node_selection.gpu_requirement import Requirement, requirement
from podgpu.extender.node_selection.quantity import whole

REQUIRE: Final = "podgpu.io/require"
"""The pod's annotation for the group that must contain its GPUs."""


class Resources(msgspec.Struct):
    """Requests and limits of a container; quantities by resource, as they were sent."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(msgspec.Struct):
    """The needed parts of a container."""

    resources: Resources | None = None
    restart: str | None = msgspec.field(default=None, name="restartPolicy")


class Spec(msgspec.Struct):
    """A pod's containers."""

    containers: list[Container] | None = None
    init: list[Container] | None = msgspec.field(default=None, name="initContainers")


class Annotations(msgspec.Struct):
    """The annotations that the extender reads."""

    require: str | None = msgspec.field(default=None, name=REQUIRE)


class Metadata(msgspec.Struct):
    """A pod's annotations."""

    annotations: Annotations | None = None


class Pod(msgspec.Struct):
    """The needed parts of a pod."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod requests.

    Attributes:
        count: number of GPUs.
        requirement: the group that must contain them; None for any.
        wrong: why the requirement is invalid; empty if it is valid.
    """

    count: int
    requirement: Requirement | None = None
    wrong: str = ""

    @property
    def required(self) -> bool:
        """Whether a node passes only if it is known to fit."""
        return self.requirement is not None or self.wrong != ""


def demand(pod: Pod, resources: Iterable[str]) -> Demand:
    """Return what a pod requests.

    Args:
        pod: the pod of a request.
        resources: names of the resources that are GPUs; their quantities are summed up.

    Raises:
        ValueError: a quantity is invalid.
    """
    count = sum(needed(pod, resource) for resource in resources)
    annotations = pod.metadata.annotations
    required = None if annotations is None else annotations.require
    if not count or required is None:
        return Demand(count)
    try:
        return Demand(count, requirement(required))
    except ValueError as error:
        return Demand(count, wrong=f"{REQUIRE} is {error}")


def needed(pod: Pod, resource: str) -> int:
    """Return how much of a resource a pod needs at the same time, calculated as Kubernetes does.

    App containers run together, and with them the sidecars: init containers that are always
    restarted. Each other init container runs with the sidecars before it
    (k8s.io/component-helpers/resource, AggregateContainerRequests).

    Raises:
        ValueError: a quantity is invalid.
    """
    together = sum(_of(container, resource) for container in pod.spec.containers or ())
    sidecars = starting = 0
    for container in pod.spec.init or ():
        quantity = _of(container, resource)
        if container.restart == "Always":
            sidecars += quantity
            starting = max(starting, sidecars)
        else:
            starting = max(starting, sidecars + quantity)
    return max(together + sidecars, starting)


def _of(container: Container, resource: str) -> int:
    resources = container.resources
    if resources is None:
        return 0
    # For an extended resource, the API server sets the request to the limit.
    for found in (resources.requests or {}, resources.limits or {}):
        if resource in found:
            return whole(found[resource])
    return 0
