"""What readers of annotations are told, and what is said of annotations that can't be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.model import PodContainer


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reader may know of a pod.

    Attributes:
        annotations: as they were sent, values of any type.
        containers: init containers first.
        node: the node that the pod is bound to; empty if unknown.
        requested: by container name, what the container requests: resource to amount, as the text
            that was sent. The limit counts where limit and request differ.
    """

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, Any]
    containers: tuple[PodContainer, ...]
    node: str = ""
    requested: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def names(self, *, init: bool = False) -> list[str]:
        """Return the containers' names in the order in which schedulers number them.

        Args:
            init: init containers too, before the others.
        """
        kinds = {"init", "sidecar", "app"} if init else {"app"}
        return [container.name for container in self.containers if container.kind in kinds]


@dataclass(frozen=True, slots=True)
class Complaint:
    """An annotation that can't be read, and what is wrong with it."""

    annotation: str
    text: str
