"""Usage of devices: usage samples, and accounts of devices, containers and holdings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.model.claims import Evidence, PartialRef
from pipeline.model.instant import Instant
from pipeline.model.pods import PodInfo


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process used of a device since the previous usage sample.

    Attributes:
        pid: pid of the process, in the pid namespace of the host.
        started: when it began, in clock ticks since the machine's start (field 22 of
            `/proc/PID/stat`), since pids are reused. None where it cannot be read.
        owner: the container that the process belongs to, by its cgroup: uid and container id, as
            far as the cgroup's path contains them; empty for a process outside all pods. None where
            it could not be read: the process had ended, or `/proc` is not the host's.
        kind: which of NVML's lists it is in; empty for a process that has ended.
        memory_bytes: device memory that it has now; None where the driver does not report it.
        busy_ns: how long it kept the device busy; None where the driver does not report it by
            process, as for an MPS server and its clients.
    """

    pid: int
    started: int | None
    owner: PartialRef | None
    kind: Literal["compute", "graphics", "mps", ""]
    memory_bytes: int | None
    busy_ns: int | None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One usage sample of a device.

    Attributes:
        device: uuid of the device.
        at: when the sample was taken.
        since: time of the previous sample; None for the first one, also the first after a gap.
        processes: sorted by pid.
        memory_used_bytes: all memory that is not free, including the driver's reserve.
        memory_reserved_bytes: memory that the driver keeps for itself.
        busy_ns: how long the device was busy since `since`: for a GPU the sum over its processes,
            for a MIG instance by its counters. None where it is unknown or `since` is None.
        energy_mj: the GPU's energy counter, in millijoules; None for MIG instances.
        good_for_ns: how long the sample's memory values are valid without another sample.
        listed: whether the processes could be listed; else `processes` has only those that are
            known otherwise.
        mps: whether an MPS server runs on the device. The driver reports the usage of its clients,
            also of those that came and went, as usage of the server.
    """

    device: str
    at: Instant
    since: Instant | None
    processes: tuple[ProcessUse, ...]
    memory_used_bytes: int | None
    memory_reserved_bytes: int | None
    busy_ns: int | None
    energy_mj: int | None
    good_for_ns: int
    listed: bool = True
    mps: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """A holding: the time during which a container held or used a device, until it did neither.

    It has its own totals, which begin at 0. A container that comes back after the end of a holding
    begins a new holding, while its `ContainerUsage` continues. `counted_ns` + `gap_ns` is the time
    from `start` to `end` of a final holding; of one that has not ended, to the last sample.

    Attributes:
        device: uuid.
        subject: the container, without a container id.
        pod: what was last known of its pod.
        source: name of the source whose claim says that it holds the device; empty without one,
            when the container is known only by its processes.
        evidence: what that claim is based on; None without one.
        start: when it began.
        end: when it ended; None while it continues.
        counted_ns: the part of its time that lies between samples without a gap.
        gap_ns: the part of its time that is in gaps: podgpu was down, or no sample succeeded.
        held_ns: held time of this holding.
        busy_ns: busy time in this holding; None where it was never known.
        energy_mj: energy in this holding, in millijoules; None where it was never known.
        memory_peak_bytes: the most memory in any sample; None where it was never known.
        memory_byte_ns: sum of its memory over all intervals, multiplied by their lengths.
        memory_ns: the time for which its memory was known.
        busy_time_ns: the part of `counted_ns` for which its busy time was known.
        busy_peak_ppm: the largest part of an interval for which it kept the device busy, in
            millionths; None where it was never known.
        contested_ns: see `ContainerUsage`, for this holding.
        switching_ns: see `ContainerUsage`, for this holding.
        xids: (code, count) of XID errors on the device during the holding, sorted by code.
        serial: number of its end among all ends since podgpu started, from 1; 0 before the end.
        id: identifies the holding among all holdings, also over restarts.
        unseen_counted_ns: for a container of podgpu's last run that was not seen since podgpu
            started: the part of `counted_ns` since then. If it is not seen again, the holding ended
            before that time.
        unseen_gap_ns: for such a container, the part of `gap_ns` since then.
    """

    device: str
    subject: PartialRef
    pod: PodInfo | None
    source: str
    evidence: Evidence | None
    start: Instant
    end: Instant | None = None
    counted_ns: int = 0
    gap_ns: int = 0
    held_ns: int = 0
    busy_ns: int | None = None
    energy_mj: int | None = None
    memory_peak_bytes: int | None = None
    memory_byte_ns: int = 0
    memory_ns: int = 0
    busy_time_ns: int = 0
    busy_peak_ppm: int | None = None
    xids: tuple[tuple[int, int], ...] = ()
    serial: int = 0
    id: str = ""
    unseen_counted_ns: int = 0
    unseen_gap_ns: int = 0
    contested_ns: int | None = None
    switching_ns: int | None = None

    @property
    def memory_mean_bytes(self) -> int | None:
        """Mean memory of the container; None where it was never known."""
        return self.memory_byte_ns // self.memory_ns if self.memory_ns else None

    @property
    def busy_mean_ppm(self) -> int | None:
        """Mean busy part of the time of known busy time, in millionths; None if unknown."""
        if self.busy_ns is None or not self.busy_time_ns:
            return None
        return min(self.busy_ns * 1_000_000 // self.busy_time_ns, 1_000_000)


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """Account of one container on one device. Totals never decrease.

    Attributes:
        subject: the container, without a container id: a restarted container continues.
        pod: what is known of its pod.
        start: since when the account exists.
        ended: since when it neither holds nor uses the device; None while it does.
        memory_bytes: device memory of its processes; None where unknown, or after its end.
        busy_ns: how long its processes kept the device busy; None where it was never known.
        held_ns: how long it held the device, multiplied by its share: to hold half of a GPU for ten
            seconds counts as five seconds.
        energy_mj: its part of the GPU's energy, by the model of docs/usage.md; None where the
            energy was never known.
        xids: (code, count) of XID errors on the device while the container held or used the device,
            sorted by code.
        holding: the present holding; None after its end.
        id: identifies this account of the container on this device, also over restarts. A
            forgotten container that comes back gets another one.
        absorbed: ids of accounts and holdings that were separate while a part of the container's
            name was unknown. Their totals are part of this account, or of its holding.
        closing: holdings that have ended but are not final yet, the latest last. They move to
            `Usage.ended` when they are final.
        recent_busy_ppm: the part of the last second or more between usage samples for which its
            processes kept the device busy, in millionths; None where unknown, or after its end.
        contested_ns: how much of `busy_ns` may belong to other users of the device: the sum over
            the usage samples of its busy time, multiplied by the others' part of the busy time of
            the device. 0 if it was always the only user; None where `busy_ns` is None, or where a
            part of it was counted without this value. `split_error_ns` derives from this and the
            next value how wrong `busy_ns` may be.
        switching_ns: how much of `busy_ns` may be time in which the device switched between its
            users, without work; unknown where `contested_ns` is unknown.
    """

    subject: PartialRef
    pod: PodInfo | None
    start: Instant
    ended: Instant | None
    memory_bytes: int | None
    busy_ns: int | None
    held_ns: int
    energy_mj: int | None
    xids: tuple[tuple[int, int], ...] = ()
    holding: Holding | None = None
    id: str = ""
    absorbed: tuple[str, ...] = ()
    closing: tuple[Holding, ...] = ()
    recent_busy_ppm: int | None = None
    contested_ns: int | None = None
    switching_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """Account of one device and its containers: each quantity is the exact sum of its parts.

    For memory: `memory_used_bytes` = that of `containers` + `memory_reserved_bytes` +
    `memory_unattributed_bytes`. For busy time, held time and energy: the total = that of
    `containers` + `forgotten_...` + the unattributed part.

    Attributes:
        device: uuid of the device.
        start: since when the account exists.
        at: the time of the last usage sample.
        containers: sorted by subject; ended ones are kept for a while.
        memory_used_bytes: memory that is not free; None where it is unknown now. Then
            `memory_reserved_bytes` and `memory_unattributed_bytes` are None, too.
        memory_reserved_bytes: memory that the driver keeps for itself; 0 where the driver does not
            report it separately.
        memory_unattributed_bytes: memory that belongs to no known container.
        busy_ns: how long the device was busy; None where it was never known.
        busy_unattributed_ns: the part of `busy_ns` that belongs to no known container.
        elapsed_ns: the time from `start` to `at`, without gaps.
        unheld_ns: the part of `elapsed_ns` that belongs to no known holder, multiplied by the part
            of the device that was not held.
        energy_mj: energy that the device used; None where it was never known.
        energy_unattributed_mj: the part of `energy_mj` that belongs to no known container.
        forgotten_busy_ns: busy time of forgotten containers.
        forgotten_held_ns: held time of forgotten containers.
        forgotten_energy_mj: energy of forgotten containers.
        unknown_ns: the part of `unheld_ns` for which no source reported the holders, or a container
            without an account held the device. In the rest of `unheld_ns` the device was free.
        id: identifies this account of the device, also over restarts.
    """

    device: str
    start: Instant
    at: Instant
    containers: tuple[ContainerUsage, ...]
    memory_used_bytes: int | None
    memory_reserved_bytes: int | None
    memory_unattributed_bytes: int | None
    busy_ns: int | None
    busy_unattributed_ns: int | None
    elapsed_ns: int
    unheld_ns: int
    energy_mj: int | None
    energy_unattributed_mj: int | None
    forgotten_busy_ns: int = 0
    forgotten_held_ns: int = 0
    forgotten_energy_mj: int = 0
    unknown_ns: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Usage:
    """Accounts of all devices; the same object as long as nothing in it changes.

    Attributes:
        devices: accounts by device uuid, in device order; only devices of the snapshot's layout.
        rejected_containers: number of containers that have no account now because there are too
            many. Their usage is unattributed.
        ended: final holdings, by `serial`; each is kept for five minutes, so that a reader that
            remembers the last serial misses none.
        ended_evicted: number of final holdings that were removed early because there were too many.
    """

    devices: Mapping[str, DeviceUsage]
    rejected_containers: int = 0
    ended: tuple[Holding, ...] = ()
    ended_evicted: int = 0

    def ended_after(self, serial: int) -> tuple[Holding, ...]:
        """Return the final holdings with a serial above `serial`."""
        if not self.ended or self.ended[-1].serial <= serial:
            return ()
        return tuple([one for one in self.ended if one.serial > serial])
