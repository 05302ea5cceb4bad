"""Conversion of the GPUs that a container was given into claims."""

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
    """Return the full name of a container."""
    namespace = sys.intern(pod.namespace)
    return PartialRef(namespace, pod.name, sys.intern(container.name), pod.uid, container.id)


def claims(
    pod: Pod, container: Container, subject: PartialRef, since: Instant | None
) -> tuple[Claim, ...]:
    """Return claims for the GPUs that a container was given or requests by name.

    The pod's own annotations are ignored, because the runtime does not report what a pod requests.
    CRI-O copies them to the containers of the pod.
    """
    by_name = container.gpus_by_name
    cdi_ids = list(by_name.devices) if by_name is not None and by_name.method == "cdi" else []
    for key, devices in container.gpus_by_annotation:
        if key not in pod.annotated:
            cdi_ids += devices
    if cdi_ids:
        by_name = if_plausible(Injection("cdi", tuple(dict.fromkeys(cdi_ids))))
    by_node = None if pod.sees_all else container.gpus_by_node
    return tuple(
        Claim(subject, injection.devices, None, since, _ORIGINS[injection.method])
        for injection in (by_name, by_node)
        if injection is not None
    )
