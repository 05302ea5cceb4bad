"""Convert the containers and devices of a story to the events of podgpu's sources."""

from dataclasses import replace
from typing import Final

from pipeline.model import (
    Claim,
    DeviceAliasesReplaced,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    Pod,
    PodContainer,
    PodInfo,
    RawDeviceId,
    RunningContainer,
)
from tests.accounting.actions import (
    ContainerName,
)
from tests.support.nodes import gpu, mig

FOREVER: Final = 1 << 60
GPUS: Final = [gpu(index) for index in range(3)]
DEVICES: Final = {
    "g0": GPUS[0],
    "g1": GPUS[1],
    "g2": GPUS[2],
    "m1": mig(GPUS[2], 1, profile="1g.10gb"),
    "m2": mig(GPUS[2], 2, profile="3g.40gb"),
}
NAMES: Final = {device.uuid: name for name, device in DEVICES.items()}


def ref(container: ContainerName) -> PartialRef:
    """Return the reference of a container from its name `pod/container/uid`.

    The namespace is the text before the first `-` of the pod's name, otherwise `ml`.
    """
    pod, container_, uid = container.split("/")
    namespace = pod.partition("-")[0] if "-" in pod else "ml"
    return PartialRef(namespace, pod, container_, uid, f"cid-{container}" if uid else "")


def container_name(subject: PartialRef) -> ContainerName:
    return f"{subject.pod}/{subject.container}/{subject.uid}"


PODS: Final = ("k1/main/k1", "k2/main/k2")


def pod_of(container: ContainerName) -> Pod:
    subject = ref(container)
    container_ = PodContainer(subject.container, "app", subject.container_id, None, False)
    info = PodInfo(subject.uid, subject.namespace, subject.pod)
    return Pod(info, Instant(0, 0), False, "", (container_,), (), True, None)


def owner(container: ContainerName) -> PartialRef:
    if not container:
        return PartialRef()
    subject = ref(container)
    return PartialRef(uid=subject.uid, container_id=subject.container_id)


def claim(
    container: ContainerName,
    device: str,
    evidence: Evidence,
    share: float | None = None,
    *,
    named: bool = False,
) -> Claim:
    subject = ref(container)
    scheme = "plugin" if evidence is Evidence.KUBELET_IDS else "uuid"
    if named:
        subject = PartialRef(subject.namespace, subject.pod, subject.container)
    return Claim(
        subject,
        (RawDeviceId(scheme, DEVICES[device].uuid),),  # type: ignore[arg-type]
        share,
        None,
        Origin(evidence),
        "nvidia.com/gpu" if evidence is Evidence.KUBELET_IDS else "",
    )


def kubelet_claim(container: ContainerName, device: str, *, by_claim: bool) -> Claim:
    """Return the kubelet's claim for a device that it allocated."""
    allocated = claim(container, device, Evidence.KUBELET_IDS, named=True)
    if not by_claim:
        return allocated
    return replace(
        allocated, devices=(dra(device),), resource="", resource_claim=f"ml/{container[:2]}"
    )


def dra(device: str) -> RawDeviceId:
    return RawDeviceId("dra", f"gpu.nvidia.com/node-1/{device}")


ALIASES: Final = DeviceAliasesReplaced(
    tuple((dra(name), device.uuid) for name, device in DEVICES.items()),
    tuple((dra(name), Instant(0, 0)) for name in DEVICES),
)


def running_container(container: ContainerName, holds: dict[str, float | None]) -> RunningContainer:
    return RunningContainer(
        ref(container),
        claims=tuple(
            claim(container, device, Evidence.RUNTIME_CDI, share) for device, share in holds.items()
        ),
    )
