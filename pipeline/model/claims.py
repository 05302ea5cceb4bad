"""Who says that which container holds which device."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from pipeline.model.time import Instant


@dataclass(frozen=True, slots=True, order=True)
class PartialRef:
    """What a source knows of a container; every part may be missing (empty).

    Sources don't resolve: the kubelet's pod-resources lack uids, its checkpoint lacks names, a
    scheduler's annotation lacks containers. The join puts the parts together.
    """

    namespace: str = ""
    pod: str = ""
    container: str = ""
    uid: str = ""
    container_id: str = ""


@dataclass(frozen=True, slots=True, order=True)
class RawDeviceId:
    """A device as a source wrote it, not yet resolved.

    Attributes:
        scheme: what the text is: `uuid` (a GPU's or a MIG instance's), `minor` (N of
            `/dev/nvidiaN`) or `index` (NVML's).
        text: the id, letter for letter.
    """

    scheme: Literal["uuid", "minor", "index"]
    text: str


class Evidence(IntEnum):
    """What a claim rests on; of two claims on one device the smaller number wins.

    The order follows who acted last before the container got its device: what the runtime injected,
    then what the scheduler decided, then what the kubelet asked for.
    """

    RUNTIME_CDI = 10
    RUNTIME_ENV = 20
    SCHEDULER_ANNOTATION = 30
    POD_LIST_FILE = 40
    CHECKPOINT = 50
    KUBELET_IDS = 60


@dataclass(frozen=True, slots=True)
class Origin:
    """What a claim rests on, and where it was read.

    Attributes:
        evidence: ranks the claim.
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
    """

    subject: PartialRef
    devices: tuple[RawDeviceId, ...]
    share: float | None
    since: Instant | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that holds a device or a part of it.

    Attributes:
        subject: the container.
        share: part of the device that it holds, in (0, 1]; None when nobody says.
        since: when it began, as well as is known.
        source: name of the source whose word won.
        evidence: what that word rests on.
    """

    subject: PartialRef
    share: float | None
    since: Instant
    source: str
    evidence: Evidence
