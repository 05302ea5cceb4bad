"""The shape of `/status`; `docs/status.md` tells of each key.

What nobody knows is null, never 0 and never an empty text.
"""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

VERSION: Final = 1
"""Of the document's shape. It grows when a reader of the old shape would be misled."""

LARGEST: Final = 10**18
"""No number is larger: beyond it a reading is no figure, and readers need not be ready for it."""

State: TypeAlias = Literal["up", "lost", "unknown"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Figure: TypeAlias = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class HolderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A container that holds a device or a part of it.

    Attributes:
        namespace: of the pod.
        pod: its name.
        container: its name.
        uid: of the pod.
        since: when it began, as well as is known.
        since_known: a source tells that; else podgpu saw it then for the first time, and it has
            been held at least since.
        share: part of the device that it holds, in (0, 1].
        replicas: how many of the replicas that a device plugin made of the device it has.
        source: name of the source whose word this is.
        evidence: what that word rests on.
        age_seconds: since the source last stood by its word.
    """

    namespace: str | None
    pod: str | None
    container: str | None
    uid: str | None
    since: Moment
    since_known: bool
    share: Figure | None
    replicas: Count | None
    source: str
    evidence: str
    age_seconds: Figure | None


class AccessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A container that has access to a device and holds nothing of it.

    Attributes:
        namespace: of the pod.
        pod: its name.
        container: its name.
        uid: of the pod.
        source: name of the source whose word this is.
        evidence: what gives the access: a variable or a mount, or a claim with `adminAccess`.
    """

    namespace: str | None
    pod: str | None
    container: str | None
    uid: str | None
    source: str
    evidence: str


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What GPUs and MIG instances have in common.

    Attributes:
        uuid: `GPU-...` or `MIG-...`.
        state: `up` answers, `lost` doesn't any more; `unknown` where nobody says.
        utilization_percent: part of the time in which some kernel ran; of a MIG instance, and where
            the driver gives no such figure, part of the time in which its engine was busy.
        memory_used_bytes: device memory that is allocated.
        memory_total_bytes: all of it.
        holders: none where nobody is known to hold it; null where no source tells of holders.
        holders_left_out: how many more there are.
        conflicts: how many pods' claims on it contradict another's.
        access: who has access to it and holds nothing of it; older daemons don't tell.
        access_left_out: how many more there are.
    """

    uuid: str
    state: State
    utilization_percent: Figure | None
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    holders: tuple[HolderStatus, ...] | None
    holders_left_out: Count
    conflicts: Count
    access: tuple[AccessStatus, ...] = ()
    access_left_out: Count = 0


class InstanceStatus(DeviceStatus, frozen=True, kw_only=True):
    """A MIG instance.

    Attributes:
        profile: such as `1g.10gb`.
        gpu_instance_id: NVML's.
        compute_instance_id: NVML's; null where the source knows the GPU instance alone.
    """

    profile: str | None
    gpu_instance_id: Count
    compute_instance_id: Count | None


class GpuStatus(DeviceStatus, frozen=True, kw_only=True):
    """A physical GPU.

    Attributes:
        index: NVML's.
        name: product name.
        power_watts: draw of the whole board.
        power_limit_watts: limit in force.
        temperature_celsius: of the core.
        instances: its MIG instances.
    """

    index: Count | None
    name: str | None
    power_watts: Figure | None
    power_limit_watts: Figure | None
    temperature_celsius: Figure | None
    instances: tuple[InstanceStatus, ...]


class ErrorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong last.

    Attributes:
        text: for people.
        age_seconds: since then; null where only its text is known.
        over: it is well again; null of a warning, after which it went on all the same, so that
            nothing tells when that is over.
    """

    text: str
    age_seconds: Figure | None
    over: bool | None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source.

    Attributes:
        name: in the configuration.
        kind: what it is.
        state: `up`, `down`, or `waiting` before its first word.
        age_seconds: since it last reported.
        confirmed_seconds: since it last stood by what it says of pods and holders.
        devices: how many it enumerated last.
        unresolved: how many ids in its claims fit no device now; 1000 stands for that and more.
        restarts: how often it failed and was started again.
        error: what went wrong last.
    """

    name: str
    kind: str
    state: Literal["up", "down", "waiting"]
    age_seconds: Figure | None
    confirmed_seconds: Figure | None
    devices: Count | None
    unresolved: Count
    restarts: Count | None
    error: ErrorStatus | None


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A sink. Counts run since podgpu started.

    Attributes:
        name: in the configuration.
        kind: what it is.
        up: whether it takes snapshots.
        delivering: whether the receiver takes what is sent; null where nothing was sent yet, and of
            a sink that doesn't send.
        queued: points that wait in its queue.
        queue_bytes: space that the queue takes.
        queue_writable: whether the queue's disk takes data; null of a sink without a queue.
        oldest_seconds: age of the oldest data in it.
        emitted: readings that it handed on, or points that its receiver took.
        dropped: readings and points that it never handed on.
        rejected: points that its receiver refused for good.
        lost_seconds: since the last was dropped or rejected; null where none was, or where nobody
            noted when.
        errors: what it failed to do besides.
        error: what went wrong last.
    """

    name: str
    kind: str | None
    up: bool | None
    delivering: bool | None
    queued: Count | None
    queue_bytes: Count | None
    queue_writable: bool | None
    oldest_seconds: Figure | None
    emitted: Count | None
    dropped: Count | None
    rejected: Count | None
    lost_seconds: Figure | None
    errors: Count | None
    error: ErrorStatus | None


class AmountsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody had of all devices together, or what there was of one.

    Attributes:
        held_seconds: time for which containers held a device, by part.
        free_seconds: time for which a device was free, by part.
        unknown_seconds: time for which it isn't known who held a device.
        allocated_ratio: part of the time of all devices, or of the one, for which they were held;
            null where that isn't known.
        used_ratio: part of that time for which they were busy; likewise.
        busy_seconds: busy time.
        idle_seconds: held time less busy time; less than 0 where more was used than was held.
        energy_joules: energy.
        holdings: how many holdings.
        incomplete: a figure lacks something that isn't known.
    """

    held_seconds: Figure
    free_seconds: Figure
    unknown_seconds: Figure
    allocated_ratio: Figure | None
    used_ratio: Figure | None
    busy_seconds: Figure | None
    idle_seconds: Figure | None
    energy_joules: Figure | None
    holdings: Count
    incomplete: bool


class PodAmountsStatus(AmountsStatus, frozen=True, kw_only=True):
    """What a pod had.

    Attributes:
        namespace: of the pod.
        pod: its name.
        uid: of the pod.
    """

    namespace: str | None
    pod: str | None
    uid: str | None


class DeviceAmountsStatus(AmountsStatus, frozen=True, kw_only=True):
    """What there was of a device, whoever had it.

    Attributes:
        uuid: of the device.
        name: model, or MIG profile with the model of its GPU.
    """

    uuid: str
    name: str | None


class DayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What was used over the last 24 hours and the rest of the hour before.

    Attributes:
        since: where the time begins that is told of.
        until: where it ends.
        accounted_seconds: of all devices together, the time of which there is an account.
        gap_seconds: the time of which there is none.
        pods: those that held the most.
        others: all other pods together; null where there are none.
        pods_left_out: how many those are.
        unattributed: what belongs to no pod.
        total: of the whole node.
        devices: all of which there is an account, in the order of `gpus`; those that are not there
            any more come last.
        devices_left_out: how many more there are.
    """

    since: Moment
    until: Moment
    accounted_seconds: Figure
    gap_seconds: Figure
    pods: tuple[PodAmountsStatus, ...]
    others: AmountsStatus | None
    pods_left_out: Count
    unattributed: AmountsStatus
    total: AmountsStatus
    devices: tuple[DeviceAmountsStatus, ...] = ()
    devices_left_out: Count = 0


class UsageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a ledger tells.

    Attributes:
        sink: the ledger's name in the configuration.
        age_seconds: since it told that; null while it has told nothing.
        error: why it couldn't tell when it was asked last.
        day: what it told last; null while it has told nothing, or has nothing of that time.
    """

    sink: str
    age_seconds: Figure | None
    error: str | None
    day: DayStatus | None


class StatusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a node stands.

    Attributes:
        version: of this shape.
        node: the node's name.
        podgpu: podgpu's version.
        time: by the node's clock.
        started: when podgpu started.
        ready: whether every source has spoken, or had its time.
        waiting_for: what it waits for; null once it is ready.
        driver: version of the kernel driver.
        gpus: by index; null while no source has told of devices.
        devices_left_out: how many GPUs and instances more there are.
        sources: in the order of the configuration.
        sinks: in the order of the configuration.
        usage: what a ledger tells of the last 24 hours; null where none runs.
    """

    version: int = VERSION
    node: str
    podgpu: str
    time: Moment
    started: Moment | None
    ready: bool
    waiting_for: str | None
    driver: str | None
    gpus: tuple[GpuStatus, ...] | None
    devices_left_out: Count
    sources: tuple[SourceStatus, ...]
    sinks: tuple[SinkStatus, ...]
    usage: UsageStatus | None = None
