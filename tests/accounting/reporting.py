"""Says what a story tells in the words of podgpu's sources."""

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
from tests.accounting.given_out import (
    Who,
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


def ref(who: Who) -> PartialRef:
    """Return a container by its name here, `pod/container/uid`."""
    pod, container, uid = who.split("/")
    return PartialRef("ml", pod, container, uid, f"cid-{who}" if uid else "")


def who_of(subject: PartialRef) -> Who:
    return f"{subject.pod}/{subject.container}/{subject.uid}"


PODS: Final = ("k1/main/k1", "k2/main/k2")


def pod_of(who: Who) -> Pod:
    subject = ref(who)
    inside = PodContainer(subject.container, "app", subject.container_id, None, False)
    info = PodInfo(subject.uid, subject.namespace, subject.pod)
    return Pod(info, Instant(0, 0), False, "", (inside,), (), True, None)


def owner(who: Who) -> PartialRef:
    if not who:
        return PartialRef()
    subject = ref(who)
    return PartialRef(uid=subject.uid, container_id=subject.container_id)


def claim(
    who: Who, device: str, evidence: Evidence, share: float | None = None, *, named: bool = False
) -> Claim:
    subject = ref(who)
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


def given(who: Who, device: str, *, by_claim: bool) -> Claim:
    """What the kubelet's list says of a device that it gave out."""
    made = claim(who, device, Evidence.KUBELET_IDS, named=True)
    if not by_claim:
        return made
    return replace(made, devices=(dra(device),), resource="", resource_claim=f"ml/{who[:2]}")


def dra(device: str) -> RawDeviceId:
    return RawDeviceId("dra", f"gpu.nvidia.com/node-1/{device}")


ALIASES: Final = DeviceAliasesReplaced(
    tuple((dra(name), device.uuid) for name, device in DEVICES.items()),
    tuple((dra(name), Instant(0, 0)) for name in DEVICES),
)


def running(who: Who, holds: dict[str, float | None]) -> RunningContainer:
    return RunningContainer(
        ref(who),
        claims=tuple(
            claim(who, device, Evidence.RUNTIME_CDI, share) for device, share in holds.items()
        ),
    )
