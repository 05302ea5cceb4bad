"""Who says that which container holds which device."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

from pipeline.model.container_ref import PartialRef
from pipeline.model.instant import Instant

Scheme: TypeAlias = Literal["uuid", "minor", "index", "plugin", "visible", "cdi", "dra", "reserved"]
"""What the text of a device id is:

* `uuid`: a GPU's or a MIG instance's, in the driver's form or in that of drivers before R470
* `minor`: N of `/dev/nvidiaN`
* `index`: NVML's, `N`, or `N:M` for the M-th MIG instance of GPU N
* `plugin`: as a device plugin named it to the kubelet
* `visible`: an element of `NVIDIA_VISIBLE_DEVICES`
* `cdi`: a qualified CDI name, `vendor/class=name`
* `dra`: `driver/pool/device` of a ResourceSlice
* `reserved`: a group of pods; the devices are those that the group's reservation pod got
"""


@dataclass(frozen=True, slots=True, order=True)
class RawDeviceId:
    """A device as a source wrote it, not yet resolved.

    Attributes:
        scheme: what the text is.
        text: the id, letter for letter.
    """

    scheme: Scheme
    text: str


class Evidence(IntEnum):
    """What a claim rests on.

    The number is a name, not a rank: `pipeline.join.trust_rules` says what each kind of evidence
    may do. Everything up to `RUNTIME_ENV` was seen in a container by the container runtime.
    """

    RUNTIME_CDI = 10
    RUNTIME_NODES = 15
    RUNTIME_ENV = 20
    SCHEDULER_ANNOTATION = 30
    POD_LIST_FILE = 40
    PLUGIN_ANSWER = 50
    KUBELET_IDS = 60


@dataclass(frozen=True, slots=True)
class Origin:
    """What a claim rests on, and where it was read.

    Attributes:
        evidence: says what the claim may do.
        detail: for people: a file and entry, an annotation's name, a socket.
    """

    evidence: Evidence
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A source's word that a container holds devices.

    Attributes:
        subject: the container, as far as the source knows it.
        devices: as the source wrote them.
        share: part of each device that is held, in (0, 1]; None when the source doesn't say.
        since: when the holding began, if the source knows; else the join notes when it first heard.
        origin: what the claim rests on.
        resource: the extended resource that the devices were asked for as, such as
            `nvidia.com/gpu`; empty where the source doesn't know of resources.
        asked: the ids that the kubelet asked for where the device plugin handed out others; they
            tell which of the kubelet's claims this one stands for.
        vouched: the configuration names what it was read from: the administrator's word.
        relayed: not the kubelet says so but a node agent beside it, which goes by annotations.
        resource_claim: `namespace/name` of the ResourceClaim that the devices were allocated to;
            empty where there is none, or the source doesn't know it.
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
