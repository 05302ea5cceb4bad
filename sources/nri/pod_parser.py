"""Parser for pods as the runtime reports them."""

from dataclasses import dataclass
from typing import Any, Final

from pipeline.allocations import MalformedError, koordinator
from pipeline.allocations.device_injection import annotated_gpus
from sources.nri.messages import decode
from sources.nri.text_limits import names, names_all_gpus, plausible

_MAX_CHARACTERS: Final = 1 << 16
"""Maximum number of characters of an annotation that is read. Kubernetes allows four times as many
for all annotations of a pod; koordinator writes some hundred for each GPU."""

_NVIDIA_PREFIX: Final = "nvidia.cdi.k8s.io"
"""Prefix of pod annotations that NVIDIA's own NRI plugin reads."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    Attributes:
        sandbox: the runtime's id of the pod.
        namespace: interned.
        name: its name.
        uid: the kubelet's uid; for a static pod it differs from its mirror pod's.
        annotated: the keys of its annotations that contain CDI names of GPUs.
        sees_all: whether an annotation requests all GPUs of the node, as for operators' own pods.
    """

    sandbox: str
    namespace: str
    name: str
    uid: str
    sees_all: bool = False
    annotated: frozenset[str] = frozenset()


def read_pod(data: bytes) -> Pod | None:
    """Parse a pod; None if it is not a pod of Kubernetes.

    Raises:
        ProtocolError: the message is invalid.
    """
    message = decode("PodSandbox", data)
    if not plausible(message.id, message.namespace, message.name, message.uid):
        return None
    annotations = message.annotations
    sees_all = any(
        names_all_gpus(names(value))
        for key, value in annotations.items()
        if key.startswith(_NVIDIA_PREFIX)
    )
    keys = frozenset(key for key, _ in annotated_gpus(annotations))
    return Pod(message.id, message.namespace, message.name, message.uid, sees_all, keys)


def koordinator_annotation(message: Any) -> str:
    """Return koordinator's annotation of a pod message; empty if there is none.

    Raises:
        MalformedError: the annotation is too long.
    """
    text: str = message.annotations.get(koordinator.ANNOTATION, "")
    if len(text) > _MAX_CHARACTERS:
        raise MalformedError(f"is longer than {_MAX_CHARACTERS} characters")
    return text
