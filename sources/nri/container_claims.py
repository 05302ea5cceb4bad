"""What a container was given, as claims."""

import sys
from typing import Final

from pipeline.allocations.device_injection import Injection, InjectionMethod
from pipeline.model import Claim, Evidence, Instant, Origin, PartialRef
from sources.nri.container_parser import Container, if_plausible
from sources.nri.pod_parser import Pod

_ORIGINS: Final[dict[InjectionMethod, Origin]] = {
    "cdi": Origin(Evidence.RUNTIME_CDI, "CDI names"),
    "mounts": Origin(Evidence.RUNTIME_ENV, "mounts of nvidia-container-devices"),
    "env": Origin(Evidence.RUNTIME_ENV, "NVIDIA_VISIBLE_DEVICES"),
    "nodes": Origin(Evidence.RUNTIME_NODES, "device nodes"),
}


def subject_of(pod: Pod, container: Container) -> PartialRef:
    """Return the container's name, with every part."""
    namespace = sys.intern(pod.namespace)
    return PartialRef(namespace, pod.name, sys.intern(container.name), pod.uid, container.id)


def claims(
    pod: Pod, container: Container, subject: PartialRef, since: Instant | None
) -> tuple[Claim, ...]:
    """Return what the container was given, and what it is told to get.

    What the pod's annotations say is left out: the runtime doesn't tell what a pod requests. CRI-O
    copies them to the pod's containers.
    """
    named = container.gpus_by_name
    by_cdi = list(named.devices) if named is not None and named.method == "cdi" else []
    for key, devices in container.gpus_by_annotation:
        if key not in pod.annotated:
            by_cdi += devices
    if by_cdi:
        named = if_plausible(Injection("cdi", tuple(dict.fromkeys(by_cdi))))
    nodes = None if pod.sees_all else container.gpus_by_node
    return tuple(
        Claim(subject, found.devices, None, since, _ORIGINS[found.method])
        for found in (named, nodes)
        if found is not None
    )
