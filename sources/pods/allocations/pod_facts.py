"""The input of annotation readers, and the problem of an annotation that cannot be read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.model import PodContainer

_NATIVE: Final = "kubernetes.io/"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a reader may use of a pod.

    Attributes:
        annotations: the pod's annotations; values may have any type.
        containers: init containers first.
        node: the node that the pod is bound to; empty if unknown.
        requested: requests of each container by its name: resource to amount, as text. If limit
            and request differ, the limit counts. Empty if unknown.
        resources: the resources of the scheduler in question; None for all extended resources.
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
        """Return the containers' names in the order in which schedulers number them.

        Args:
            init: include init containers, before the others.
        """
        kinds = {"init", "sidecar", "app"} if init else {"app"}
        return [container.name for container in self.containers if container.kind in kinds]

    def requests_resource(self, container: str) -> bool:
        """Return whether a container requests a resource of the scheduler; True if unknown."""
        if not self.requested:
            return True
        return any(
            name in self.resources
            if self.resources is not None
            else "/" in name and _NATIVE not in name
            for name, amount in self.requested.get(container, {}).items()
            if amount != "0"
        )


@dataclass(frozen=True, slots=True)
class AnnotationProblem:
    """An annotation that cannot be read, and its problem."""

    annotation: str
    text: str
