"""Claims: statements of sources that a container holds devices, and references to containers."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

from pipeline.model.instant import Instant
from pipeline.model.owners import OwnerKind, owner_kind

Scheme: TypeAlias = Literal[
    "uuid", "minor", "index", "plugin", "visible", "cdi", "dra", "reserved", "all"
]
"""What kind of device id a text is:

* `uuid`: uuid of a GPU or a MIG instance, in the driver's form or the form of drivers before R470
* `minor`: N of `/dev/nvidiaN`
* `index`: NVML's index `N`, or `N:M` for MIG instance M of GPU N
* `plugin`: an id that a device plugin registered with the kubelet
* `visible`: an element of `NVIDIA_VISIBLE_DEVICES`
* `cdi`: a qualified CDI name, `vendor/class=name`
* `dra`: `driver/pool/device` of a ResourceSlice
* `reserved`: a group of pods; its devices are those that the group's reservation pod got
* `all`: all devices of the node; of a GPU with MIG instances the instances
"""


@dataclass(frozen=True, slots=True, order=True)
class RawDeviceId:
    """A device id as a source wrote it, not yet resolved to a device.

    Attributes:
        scheme: what kind of id the text is.
        text: the id, unchanged.
    """

    scheme: Scheme
    text: str


class Evidence(IntEnum):
    """What a claim is based on.

    The number identifies the kind. It is not a rank: `pipeline.join.trust_rules` defines what each
    kind of evidence may do. All kinds up to `RUNTIME_ENV` are reports of the container runtime
    about the containers of pods.
    """

    RUNTIME_CDI = 10
    RUNTIME_NODES = 15
    RUNTIME_ENV = 20
    DEVICE_REQUEST = 25
    SCHEDULER_ANNOTATION = 30
    POD_LIST_FILE = 40
    JOB_ALLOCATION = 45
    PLUGIN_ANSWER = 50
    KUBELET_IDS = 60


@dataclass(frozen=True, slots=True)
class Origin:
    """What a claim is based on, and where it was read.

    Attributes:
        evidence: decides what the claim may do.
        detail: where it was read, for people: a file and entry, an annotation, a socket.
    """

    evidence: Evidence
    detail: str = ""


@dataclass(frozen=True, slots=True, order=True)
class PartialRef:
    """What a source knows of a container's identity. A part that it does not know is empty.

    Sources do not resolve references: the kubelet's pod-resources API has no uids, its checkpoint
    has no names, and a scheduler's annotation has no containers. The join combines the parts.

    A job, and a container without a pod, are in the same parts: see `pipeline.model.owners`.
    """

    namespace: str = ""
    pod: str = ""
    container: str = ""
    uid: str = ""
    container_id: str = ""

    @property
    def kind(self) -> OwnerKind:
        """The kind of the owner: a pod, a job, or a container without a pod."""
        return owner_kind(self.uid or self.container_id)


@dataclass(frozen=True, slots=True, order=True)
class ClaimedDevice:
    """A device as a ResourceClaim was allocated it: by its name in a ResourceSlice.

    Attributes:
        claim_namespace: namespace of the ResourceClaim.
        claim_name: name of the ResourceClaim.
        driver: name of the DRA driver.
        pool: name of the driver's pool; it may contain slashes.
        device: name of the device in the pool.
    """

    claim_namespace: str
    claim_name: str
    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A source's statement that a container holds devices.

    Attributes:
        subject: the container, as far as the source knows it.
        devices: the device ids as the source wrote them.
        share: the part of each device that is held, in (0, 1]; None if the source does not report
            it.
        since: when the holding began, if the source knows it; else the join uses the time at which
            it first saw the holder.
        origin: what the claim is based on.
        resource: the extended resource that was requested, such as `nvidia.com/gpu`; empty where
            the source does not know resources.
        asked: the ids that the kubelet requested, if the device plugin returned other ids. They
            show which of the kubelet's claims this claim replaces.
        vouched: whether the configuration names the annotation or file that the claim was read
            from, so that the administrator is responsible for the claim.
        relayed: whether the claim comes from a node agent that runs next to the kubelet and reads
            annotations, and not from the kubelet.
        resource_claim: `namespace/name` of the ResourceClaim that the devices were allocated to;
            empty where there is none or the source does not know it.
    """

    subject: PartialRef
    devices: tuple[RawDeviceId, ...]
    share: float | None
    since: Instant | None
    origin: Origin
    resource: str = ""
    asked: tuple[RawDeviceId, ...] = ()
    vouched: bool = False
    resource_claim: str = ""
    relayed: bool = False
