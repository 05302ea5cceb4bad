"""From a pod as the runtime tells of it to what podgpu needs of it."""

from dataclasses import dataclass
from typing import Any, Final

from pipeline.allocations import MalformedError, koordinator
from pipeline.allocations.device_injection import annotated_gpus
from sources.nri import messages
from sources.nri.text_limits import names, names_all_gpus, plausible

_LONGEST: Final = 1 << 16
"""Characters of an annotation that is read. Kubernetes allows four times as many to all of a pod's
together; koordinator writes some hundred for each GPU."""

_NVIDIA: Final = "nvidia.cdi.k8s.io"
"""Annotations of pods by which NVIDIA's own plugin is told what to inject."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    Attributes:
        sandbox: the runtime's id of it.
        namespace: interned.
        name: its name.
        uid: the kubelet's; a static pod's is not that of its mirror.
        annotated: the keys of its own annotations that hold CDI names of GPUs.
        sees_all: it is told to get all GPUs of the node, as operators' own are.
    """

    sandbox: str
    namespace: str
    name: str
    uid: str
    sees_all: bool = False
    annotated: frozenset[str] = frozenset()


def read_pod(data: bytes) -> Pod | None:
    """Read a pod; None if it is none of Kubernetes'.

    Raises:
        ProtocolError: it can't be read.
    """
    told = messages.read_pod(data)
    if not plausible(told.id, told.namespace, told.name, told.uid):
        return None
    annotations = told.annotations
    sees_all = any(
        names_all_gpus(names(value))
        for key, value in annotations.items()
        if key.startswith(_NVIDIA)
    )
    keys = frozenset(key for key, _ in annotated_gpus(annotations))
    return Pod(told.id, told.namespace, told.name, told.uid, sees_all, keys)


def koordinator_annotation(message: Any) -> str:
    """Return koordinator's annotation of an unread pod; empty without one.

    Raises:
        MalformedError: it is far too long.
    """
    text: str = message.annotations.get(koordinator.ANNOTATION, "")
    if len(text) > _LONGEST:
        raise MalformedError(f"is longer than {_LONGEST} characters")
    return text
