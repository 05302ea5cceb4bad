"""Format of what uses a device in the status document: containers, processes; and problems."""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

LARGEST: Final = 10**18
"""Largest number in a document. Larger readings are invalid, and some JSON parsers cannot read
them."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Figure: TypeAlias = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A container that a source reports for a device; names are null if they are unknown.

    Attributes:
        namespace: namespace of the pod.
        pod: name of the pod.
        container: name of the container.
        uid: UID of the pod.
    """

    namespace: str | None
    pod: str | None
    container: str | None
    uid: str | None


class UseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a container uses of a device, from the usage accounts.

    Attributes:
        busy_percent: percentage of the last minute, or of a shorter time if it has not been known
            for as long, in which its processes kept the device busy; null if unknown.
        busy_error_percent: by how many percentage points `busy_percent` may be wrong, because the
            device is shared; 0 if the container was its only user, null if unknown.
        memory_used_bytes: device memory of its processes; null if unknown.
        energy_joules: its part of the GPU's energy since it has held or used the device; null if
            unknown.
        incomplete: whether the energy lacks a part of this time, for example because podgpu
            started later than the container.
    """

    busy_percent: Figure | None
    busy_error_percent: Figure | None
    memory_used_bytes: Count | None
    energy_joules: Figure | None
    incomplete: bool = False


class UserStatus(ContainerStatus, frozen=True, kw_only=True):
    """A container that uses a device without holding it.

    Attributes:
        use: what it uses of the device.
    """

    use: UseStatus


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU or MIG instance.

    Attributes:
        pid: pid in the pid namespace of the host.
        kind: list of the driver that contains it: `compute`, `graphics` or `mps`.
        memory_used_bytes: device memory of the process; null if the driver does not report it.
    """

    pid: Count
    kind: str
    memory_used_bytes: Count | None


class HistoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour of a device: means of equal steps, the oldest first, all lists of one length.

    The last step ends at the document's time and may be shorter. A value is null if nothing was
    read in its step.

    Attributes:
        step_seconds: length of a step.
        utilization_percent: as `utilization_percent` of the device.
        memory_used_bytes: allocated device memory.
        power_watts: power draw of the whole board; null for a MIG instance.
    """

    step_seconds: Count
    utilization_percent: tuple[Figure | None, ...]
    memory_used_bytes: tuple[Count | None, ...]
    power_watts: tuple[Figure | None, ...] | None


class AffectedStatus(ContainerStatus, frozen=True, kw_only=True):
    """A container that a problem affects.

    Attributes:
        part: its part in the problem: `caused` (the kernel log names one of its processes),
            `used` or `held` (the device, at that time), or `claims` (a device that another pod
            claims too).
    """

    part: Literal["caused", "used", "held", "claims"]


class ProblemStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that needs attention.

    Attributes:
        kind: kind of the problem, as in `docs/status.md`.
        severity: `critical` if work fails or a GPU is unusable, `warning` if it needs attention
            soon, `info` if it may be no fault of the node.
        where: name of the GPU, instance, source or sink, for people; null for the whole node.
        device: UUID of the GPU or instance; null if it is not about a device.
        text: what happened, as a sentence that names the place.
        advice: what to do; null if `text` says it, or if no action is known.
        containers: containers that it affects.
        containers_left_out: number of further such containers.
        since: when it began, or when podgpu saw it first; null if unknown.
        since_known: whether podgpu saw it begin. Otherwise it can have begun before `since`.
    """

    kind: str
    severity: Literal["critical", "warning", "info"]
    where: str | None
    device: str | None
    text: str
    advice: str | None = None
    containers: tuple[AffectedStatus, ...] = ()
    containers_left_out: Count = 0
    since: Moment | None = None
    since_known: bool = False
