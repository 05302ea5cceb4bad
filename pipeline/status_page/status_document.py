"""Format of the status document at `/status`. `docs/status.md` describes its keys.

An unknown value is null, never 0 or an empty text.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from pipeline.status_page.usage_format import UsageStatus
from pipeline.status_page.use_format import (
    ContainerStatus,
    Count,
    Figure,
    HistoryStatus,
    Moment,
    ProblemStatus,
    ProcessStatus,
    UserStatus,
    UseStatus,
)

VERSION: Final = 1
"""Version of the format. It increases if readers of the old format would be misled."""

State: TypeAlias = Literal["up", "lost", "unknown"]


class HolderStatus(ContainerStatus, frozen=True, kw_only=True):
    """A container that holds a device or a share of it.

    Attributes:
        since: when the container got the device, as far as known.
        since_known: whether a source reports that time; otherwise podgpu saw the holder then for
            the first time, and it may have held the device before.
        share: share of the device, above 0 and up to 1.
        replicas: number of replicas of the device that the container holds; null without replicas.
        source: name of the source that reports the holder.
        evidence: evidence of the claim.
        age_seconds: seconds since the source last confirmed its claims; null if it never did.
        use: what the container itself uses of the device; null without usage accounts.
        facts: what is known of a job, or of a container without a pod, by name; missing for a pod.
    """

    since: Moment
    since_known: bool
    share: Figure | None
    replicas: Count | None
    source: str
    evidence: str
    age_seconds: Figure | None
    use: UseStatus | None = None
    facts: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class AccessStatus(ContainerStatus, frozen=True, kw_only=True):
    """A container that has access to a device without holding it.

    Attributes:
        source: name of the source that reports the access.
        evidence: what gives access: a variable, a mount, or a ResourceClaim with `adminAccess`.
    """

    source: str
    evidence: str


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes that GPUs and MIG instances have in common.

    Attributes:
        uuid: `GPU-...` or `MIG-...`.
        state: `up` if the device responds, `lost` if it was present and does not respond any more,
            `unknown` if no source reports its state.
        utilization_percent: percentage of time in which a kernel ran. For a MIG instance, and if
            the driver does not report that: percentage of time in which its engine was busy.
        memory_used_bytes: allocated device memory.
        memory_total_bytes: total device memory.
        memory_unattributed_bytes: memory that belongs to no known container, by the usage
            accounts; null if unknown.
        holders: holders of the device; empty if there are none, null if no source reports holders.
        holders_left_out: number of further holders.
        conflicts: number of pods whose claims on the device conflict with others.
        access: containers that have access and do not hold the device; missing in documents of
            older podgpu versions.
        access_left_out: number of further containers with access.
        users: containers that use the device without holding it, by the usage accounts.
        users_left_out: number of further such containers.
        processes: processes on the device; null if they could not be listed.
        processes_left_out: number of further processes.
        history: the last hour; null if nothing was read in it.
    """

    uuid: str
    state: State
    utilization_percent: Figure | None
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    memory_unattributed_bytes: Count | None = None
    holders: tuple[HolderStatus, ...] | None
    holders_left_out: Count
    conflicts: Count
    access: tuple[AccessStatus, ...] = ()
    access_left_out: Count = 0
    users: tuple[UserStatus, ...] = ()
    users_left_out: Count = 0
    processes: tuple[ProcessStatus, ...] | None = None
    processes_left_out: Count = 0
    history: HistoryStatus | None = None


class InstanceStatus(DeviceStatus, frozen=True, kw_only=True):
    """A MIG instance.

    Attributes:
        profile: profile such as `1g.10gb`.
        gpu_instance_id: NVML's id of the GPU instance.
        compute_instance_id: NVML's id of the compute instance; null if the source reports only the
            GPU instance.
    """

    profile: str | None
    gpu_instance_id: Count
    compute_instance_id: Count | None


class XidStatus(msgspec.Struct, frozen=True, kw_only=True):
    """XID errors of a GPU with one code, since podgpu started.

    Attributes:
        code: the code.
        errors: number of errors; null if it is not reported.
        last_seen: time of the last error; null if it is not reported.
        meaning: description of the code; null if the code is unknown.
        action: word for the action that NVIDIA advises, as in `docs/xid.md`; null if the code is
            unknown.
    """

    code: Count
    errors: Count | None
    last_seen: Moment | None
    meaning: str | None
    action: str | None


class GpuStatus(DeviceStatus, frozen=True, kw_only=True):
    """A physical GPU.

    Attributes:
        index: NVML's index.
        name: product name.
        power_watts: power draw of the whole board.
        power_limit_watts: enforced power limit.
        temperature_celsius: temperature of the GPU core.
        temperature_slowdown_celsius: temperature at which the GPU reduces its clocks; null if it
            is not read.
        instances: MIG instances of the GPU.
        xids: its XID errors, the latest first; missing in documents of older podgpu versions.
        xids_left_out: number of further codes.
    """

    index: Count | None
    name: str | None
    power_watts: Figure | None
    power_limit_watts: Figure | None
    temperature_celsius: Figure | None
    temperature_slowdown_celsius: Figure | None = None
    instances: tuple[InstanceStatus, ...]
    xids: tuple[XidStatus, ...] = ()
    xids_left_out: Count = 0


class ErrorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last error or warning of a component.

    Attributes:
        text: the message.
        age_seconds: seconds since the error or warning; null if only its text is known.
        over: whether the error is resolved. Null for a warning: the component continues, and
            nothing shows when the cause is gone.
    """

    text: str
    age_seconds: Figure | None
    over: bool | None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source.

    Attributes:
        name: name in the configuration.
        kind: kind of the source.
        relayed_by: name of the source that emits its events, as from a recording; null for a
            source of the configuration.
        state: `up`, `down`, or `waiting` before the first report.
        age_seconds: seconds since the last report.
        confirmed_seconds: seconds since the source last confirmed its reports of pods and holders;
            null if it reports none.
        devices: number of devices in the last list of the source; null if it lists no devices.
        unresolved: number of ids in the source's claims that match no device; at most 1000.
        restarts: number of restarts of the source after an error.
        error: last error or warning of the source.
    """

    name: str
    kind: str
    relayed_by: str | None = None
    state: Literal["up", "down", "waiting"]
    age_seconds: Figure | None
    confirmed_seconds: Figure | None
    devices: Count | None
    unresolved: Count
    restarts: Count | None
    error: ErrorStatus | None


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A sink. Counts start at 0 when podgpu starts.

    Attributes:
        name: name in the configuration.
        kind: kind of the sink.
        up: whether the sink accepts snapshots.
        delivering: whether the receiver accepts data; null if nothing has been sent yet, and for a
            sink that does not send.
        queued: number of points in the queue.
        queue_bytes: size of the queue in bytes.
        queue_writable: whether the queue can be written to disk; null for a sink without a queue.
        oldest_seconds: age of the oldest data in the queue.
        emitted: number of readings that the sink emitted, or of points that its receiver accepted.
        dropped: number of readings and points that the sink dropped.
        rejected: number of points that the receiver refused permanently.
        lost_seconds: seconds since the last dropped or rejected point; null if there was none, or
            if the time is unknown.
        errors: number of other errors of the sink.
        error: last error or warning of the sink.
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


class StatusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a node.

    Attributes:
        version: version of the format.
        node: name of the node.
        podgpu: podgpu's version.
        notes: sentences about what is not measured on this node now: a recording, simulated GPUs,
            sample data.
        time: time of the document, from the node's clock.
        started: when podgpu started.
        ready: whether podgpu is ready: every source has reported, or the time to wait for it is
            over.
        waiting_for: what podgpu waits for; null when it is ready.
        driver: version of the kernel driver.
        gpus: the GPUs; null if no source has reported devices.
        devices_left_out: number of further GPUs and instances.
        sources: sources in the order of the configuration.
        sinks: sinks in the order of the configuration.
        usage: usage of the last 24 hours; null without a ledger.
        problems: what needs attention, the most severe first; null in documents of older podgpu
            versions.
        problems_left_out: number of further problems.
    """

    version: int = VERSION
    node: str
    podgpu: str
    notes: tuple[str, ...] = ()
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
    problems: tuple[ProblemStatus, ...] | None = None
    problems_left_out: Count = 0
