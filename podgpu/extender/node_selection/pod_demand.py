"""What a pod asks for: how many GPUs, and how they have to be joined."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from podgpu.extender.node_selection.gpu_requirement import Requirement, requirement
from podgpu.extender.node_selection.quantity import whole

REQUIRE: Final = "podgpu.io/require"
"""The pod's annotation that says what its GPUs have to have in common."""


class Resources(msgspec.Struct):
    """A container's; quantities by resource, as they were sent."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(msgspec.Struct):
    """A container, as far as it says what is asked for."""

    resources: Resources | None = None
    restart: str | None = msgspec.field(default=None, name="restartPolicy")


class Spec(msgspec.Struct):
    """A pod's containers."""

    containers: list[Container] | None = None
    init: list[Container] | None = msgspec.field(default=None, name="initContainers")


class Annotations(msgspec.Struct):
    """What is looked at of a pod's annotations."""

    require: str | None = msgspec.field(default=None, name=REQUIRE)


class Metadata(msgspec.Struct):
    """A pod's annotations."""

    annotations: Annotations | None = None


class Pod(msgspec.Struct):
    """What is looked at of a pod."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for.

    Attributes:
        count: GPUs.
        requirement: what they have to have in common; None for nothing.
        wrong: why the requirement can't be met anywhere; empty if it can be understood.
    """

    count: int
    requirement: Requirement | None = None
    wrong: str = ""

    @property
    def required(self) -> bool:
        """Whether a node has to be known to fit."""
        return self.requirement is not None or self.wrong != ""


def demand(pod: Pod, resources: Iterable[str]) -> Demand:
    """Return what a pod asks for.

    Args:
        pod: as it was sent.
        resources: names of the resources that are GPUs; of several the sum counts.

    Raises:
        ValueError: a quantity is none.
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
    """Return how much of a resource a pod needs at once, as Kubernetes reckons it.

    App containers run together, and with them those init containers that are restarted always, its
    sidecars. Each other init container runs by itself, beside the sidecars before it
    (k8s.io/component-helpers/resource, AggregateContainerRequests).

    Raises:
        ValueError: a quantity is none.
    """
    together = sum(_of(container, resource) for container in pod.spec.containers or ())
    sidecars = alone = 0
    for container in pod.spec.init or ():
        asked = _of(container, resource)
        if container.restart == "Always":
            sidecars += asked
            alone = max(alone, sidecars)
        else:
            alone = max(alone, sidecars + asked)
    return max(together + sidecars, alone)


def _of(container: Container, resource: str) -> int:
    resources = container.resources
    if resources is None:
        return 0
    # Of an extended resource the API server sets the request to the limit.
    for found in (resources.requests or {}, resources.limits or {}):
        if resource in found:
            return whole(found[resource])
    return 0
