"""What a pod requests: how many GPUs, and which kind of group must contain them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final

import msgspec

from pipeline.model import Level
from pipeline.model.topology_tree import Topology


class Requirement(Enum):
    """A kind of group that must contain all GPUs of a pod; the values are used in annotations."""

    NVLINK = "nvlink"
    SINGLE = "single"
    MULTIPLE = "multiple"
    HOSTBRIDGE = "hostbridge"
    NODE = "node"

    @property
    def title(self) -> str:
        """The name of a group of this kind, for messages."""
        return _TITLES[self]

    def groups(self, topology: Topology) -> tuple[int, ...]:
        """Return the masks of the groups of this kind on a node.

        A GPU may be the only one of its group, except for NVLink groups.
        """
        if self is Requirement.NVLINK:
            return tuple(domain.mask for domain in topology.domains)
        return tuple(node.mask for node in topology.levels.get(Level[self.name], ()))


_TITLES: Final = {
    Requirement.NVLINK: "NVLink group",
    Requirement.SINGLE: "PCIe switch",
    Requirement.MULTIPLE: "group of PCIe switches",
    Requirement.HOSTBRIDGE: "PCIe host bridge",
    Requirement.NODE: "NUMA node",
}

WORDS: Final = tuple(each.value for each in Requirement)
_LONGEST: Final = 40


def requirement(word: str) -> Requirement:
    """Return the kind of group that the value of an annotation names.

    Raises:
        ValueError: the value is not in `WORDS`; the text of the error starts with the value.
    """
    try:
        return Requirement(word)
    except ValueError:
        raise ValueError(f"{word[:_LONGEST]!r}: use one of {', '.join(WORDS)}") from None


def groups(topology: Topology, required: Requirement | None) -> tuple[int, ...]:
    """Return the masks of the groups; one of them must contain all GPUs of the pod."""
    return (topology.mask,) if required is None else required.groups(topology)


REQUIRE: Final = "podgpu.io/require"
"""The pod's annotation that names the kind of group that must contain its GPUs."""


class Resources(msgspec.Struct):
    """Requests and limits of a container; quantities by resource, as they were sent."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(msgspec.Struct):
    """The used parts of a container."""

    resources: Resources | None = None
    restart: str | None = msgspec.field(default=None, name="restartPolicy")


class Spec(msgspec.Struct):
    """The used parts of a pod's spec."""

    containers: list[Container] | None = None
    init: list[Container] | None = msgspec.field(default=None, name="initContainers")


class Annotations(msgspec.Struct):
    """The pod's annotation that the extender reads."""

    require: str | None = msgspec.field(default=None, name=REQUIRE)


class Metadata(msgspec.Struct):
    """The used parts of a pod's metadata."""

    annotations: Annotations | None = None


class Pod(msgspec.Struct):
    """The used parts of a pod."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod requests.

    Attributes:
        count: number of GPUs.
        requirement: kind of group that must contain the GPUs; None for any GPUs of a node.
        wrong: why the pod's annotation is invalid, for messages; empty if it is valid.
    """

    count: int
    requirement: Requirement | None = None
    wrong: str = ""


def demand(pod: Pod, resources: Iterable[str]) -> Demand:
    """Return what a pod requests.

    Args:
        pod: the pod in the scheduler's request.
        resources: names of the resources that are GPUs; their quantities are added.

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

    App containers run together with the sidecars, which are init containers with restart policy
    Always. Each other init container runs with the sidecars before it
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


_FORM: Final = re.compile(
    r"([+-]?)([0-9]{1,18})(?:\.([0-9]{0,18}))?"
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)
_DECIMAL: Final = {
    suffix: Fraction(10) ** power
    for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
_BINARY: Final = {f"{suffix}i": Fraction(1024) ** n for n, suffix in enumerate("KMGTPE", 1)}
_FACTORS: Final = {**_DECIMAL, **_BINARY, "": Fraction(1)}
_MOST: Final = 2**63 - 1


def whole(value: str | int | float) -> int:
    """Return a quantity of an extended resource, which must be a whole number.

    The API server writes quantities as text, and some large numbers with a suffix: `2k`
    (k8s.io/apimachinery/pkg/api/resource).

    Args:
        value: a text such as `4` or `2k`, or a number.

    Raises:
        ValueError: the value is not a quantity, not a whole number, or below 0.
    """
    match = _FORM.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{str(value)[:40]!r} is not a quantity")
    sign, integer, fraction, suffix, exponent = match.groups(default="")
    number = Fraction(int(integer + fraction), 10 ** len(fraction)) * _FACTORS[suffix]
    number *= Fraction(10) ** int(exponent or 0)
    if sign == "-":
        number = -number
    if number.denominator != 1 or not 0 <= number <= _MOST:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number of 0 or more")
    return int(number)
