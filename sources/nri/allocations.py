"""What a container was given, as claims."""

import sys
from typing import Final

from pipeline.allocations import koordinator
from pipeline.injection import Injection, Word
from pipeline.model import Claim, Evidence, Instant, Origin, PartialRef
from sources.nri.containers import Container
from sources.nri.pods import Pod

_ORIGINS: Final[dict[Word, Origin]] = {
    "cdi": Origin(Evidence.RUNTIME_CDI, "CDI names"),
    "mounts": Origin(Evidence.RUNTIME_ENV, "mounts of nvidia-container-devices"),
    "env": Origin(Evidence.RUNTIME_ENV, "NVIDIA_VISIBLE_DEVICES"),
    "nodes": Origin(Evidence.RUNTIME_ENV, "device nodes"),
}
_KOORDINATOR: Final = Origin(Evidence.SCHEDULER_ANNOTATION, koordinator.ANNOTATION)


def subject_of(pod: Pod, container: Container) -> PartialRef:
    """Return the container's name, with every part."""
    namespace = sys.intern(pod.namespace)
    return PartialRef(namespace, pod.name, sys.intern(container.name), pod.uid, container.id)


def claims(
    pod: Pod, container: Container, subject: PartialRef, since: Instant | None
) -> tuple[Claim, ...]:
    """Return what the container was given, and what its pod's scheduler says.

    What a scheduler gave is the pod's, whichever of its containers uses it.
    """
    found: list[Claim] = []
    if (given := _given(pod, container)) is not None:
        found.append(Claim(subject, given.devices, None, since, _ORIGINS[given.word]))
    whole = PartialRef(subject.namespace, pod.name, "", pod.uid)
    found += [Claim(whole, held.devices, held.share, None, _KOORDINATOR) for held in pod.held]
    return tuple(found)


def _given(pod: Pod, container: Container) -> Injection | None:
    return container.named or (None if pod.sees_all else container.nodes)
