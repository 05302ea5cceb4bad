"""Who used how much of a device: what is looked at, and what it comes to for each container."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.model.claims import Evidence
from pipeline.model.container_ref import PartialRef
from pipeline.model.instant import Instant
from pipeline.model.pods import PodInfo


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process had of a device since the look before.

    Attributes:
        pid: in the pid namespace of the host.
        started: when it began, in clock ticks since the machine's start (field 22 of
            `/proc/PID/stat`): a pid is used again. None where that can't be read.
        owner: the container whose process it is, by its cgroup: uid and container id, as far as
            they stand there; an empty one is a process outside all pods. None where nobody could
            look: it had ended, or `/proc` isn't the host's.
        kind: which of NVML's lists it stands in; empty for one that has ended.
        memory_bytes: device memory that it has now; None where the driver doesn't say.
        busy_ns: how long it kept the device busy; None where the driver doesn't say it by process,
            as of an MPS server and its clients.
    """

    pid: int
    started: int | None
    owner: PartialRef | None
    kind: Literal["compute", "graphics", "mps", ""]
    memory_bytes: int | None
    busy_ns: int | None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One look at who uses a device.

    Attributes:
        device: its uuid.
        at: when it was looked at.
        since: the look before; None at the first one, and at the first one after a break.
        processes: sorted by pid.
        memory_used_bytes: all that is not free, what the driver keeps for itself too.
        memory_reserved_bytes: what the driver keeps for itself.
        busy_ns: how long the device was busy since then: of a GPU the sum over its processes, of a
            MIG instance by its counters. None where nobody says, and where `since` is.
        energy_mj: the counter of the GPU, in millijoules; None for MIG instances, whose GPU has it.
        good_for_ns: how long the memory that it tells of stands without another look.
        listed: the processes could be listed; else only those stand there that are known otherwise.
        mps: an MPS server works on the device: what its clients do, and those that came and went,
            the driver reports as the server's.
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
    """A container's time on a device: from when it held or used it until it did neither.

    It has accumulators of its own, which begin at 0: a container that comes back after its end
    begins another one, while its `ContainerUsage` goes on. For one that has ended, and for one that
    is looked at, `counted_ns` + `gap_ns` is the time from `start` to `end`, or to the last look.

    Attributes:
        device: uuid.
        subject: the container, without a container id.
        pod: what was last known of its pod.
        source: name of the source by whose word it holds the device; empty where none says so, and
            it is known by its processes alone.
        evidence: what that word rests on; None where there is none.
        start: when it began.
        end: when it ended; None while it goes on.
        counted_ns: of its time, what lies between looks without a break.
        gap_ns: of its time, what lies in breaks: podgpu was down, or the driver didn't answer.
        held_ns: as in `ContainerUsage`, of this holding alone.
        busy_ns: likewise.
        energy_mj: likewise.
        memory_peak_bytes: the most memory that it had at a look; None where that was never known.
        memory_byte_ns: its memory times the time for which that stood, added up.
        memory_ns: the time for which its memory was known.
        busy_time_ns: of `counted_ns`, the time for which it was known how busy it kept the device.
        busy_peak_ppm: the largest part of an interval between two looks for which it kept the
            device busy, in millionths; None where that was never known.
        xids: (code, count) of XID errors on the device meanwhile, sorted by code.
        serial: number of the end among all ends since podgpu started, from 1; 0 before it.
        id: identifies the holding among all holdings of all time, also over restarts.
        unseen_counted_ns: of `counted_ns`, the time since podgpu began of a container that was
            there when podgpu last ran, for as long as nobody has seen it since. If nobody does, the
            holding ended before that time.
        unseen_gap_ns: likewise of `gap_ns`.
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

    @property
    def memory_mean_bytes(self) -> int | None:
        """Its mean memory; None where that was never known for any time."""
        return self.memory_byte_ns // self.memory_ns if self.memory_ns else None

    @property
    def busy_mean_ppm(self) -> int | None:
        """For which part of the time it kept the device busy, in millionths; None if unknown."""
        if self.busy_ns is None or not self.busy_time_ns:
            return None
        return min(self.busy_ns * 1_000_000 // self.busy_time_ns, 1_000_000)


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What one container has and had of one device. No total ever falls.

    Attributes:
        subject: the container, without a container id: one that is made anew goes on.
        pod: what is known of its pod.
        start: since when there is an account of it.
        ended: since when it neither holds nor uses the device; None while it does.
        memory_bytes: device memory of its processes; None where that isn't known, or it has ended.
        busy_ns: how long its processes kept the device busy; None where that was never known.
        held_ns: for how long it held the device, by the part that it held: half of a GPU for ten
            seconds is five seconds.
        energy_mj: its part of the GPU's energy, by the model of docs/usage.md; None where the
            energy was never known.
        xids: (code, count) of XID errors on the device while it was there, sorted by code.
        holding: the holding that goes on; None where it has ended.
        id: identifies this account of the container on this device, also over restarts. One that
            is forgotten and comes back has another.
        absorbed: ids of accounts and holdings that were kept apart while a part of the container's
            name was missing. All they had is part of this account, or of its holding.
        closing: holdings that have ended and for which something may still come, the latest last:
            `Usage.ended` has them once that is over.
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


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What was used of one device, and by whom: each quantity is the sum of its parts, exactly.

    For memory: `memory_used_bytes` = those of `containers` + `memory_reserved_bytes` +
    `memory_unattributed_bytes`. For each of busy, held and energy: the total = those of
    `containers` + `forgotten_...` + the unattributed part.

    Attributes:
        device: its uuid.
        start: since when there is an account.
        at: until when: that of the last look.
        containers: sorted by subject; those that ended are kept for a while.
        memory_used_bytes: None where it isn't known now; then the other two are as well.
        memory_reserved_bytes: what the driver keeps for itself; 0 where it doesn't tell it apart.
        memory_unattributed_bytes: what no container is known to have.
        busy_ns: how long it was busy; None where that was never known.
        busy_unattributed_ns: of it, what no container is known to have done.
        elapsed_ns: from `start` to `at`, without breaks.
        unheld_ns: of it, what no container is known to have held, by part.
        energy_mj: what it used; None where that was never known.
        energy_unattributed_mj: of it, what falls to no container.
        forgotten_busy_ns: of containers that ended so long ago that they are kept no more.
        forgotten_held_ns: the same of held time.
        forgotten_energy_mj: the same of energy.
        unknown_ns: of `unheld_ns`, the time for which no source told who holds the device, or a
            container held it that has no account. The rest of `unheld_ns` is the time for which the
            device was free, by part.
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
    """What was used of all devices; the same object while nothing of that changes.

    Attributes:
        devices: by uuid, in device order; none but those of the snapshot's layout.
        rejected_containers: how many containers are left out of account now because there are too
            many; what they use stands as unattributed.
        ended: holdings that have ended and of which nothing more is to come, by `serial`; each is
            kept for a while, so that whoever remembers the last serial misses none.
        ended_evicted: how many of those were let go of early, because there were too many.
    """

    devices: Mapping[str, DeviceUsage]
    rejected_containers: int = 0
    ended: tuple[Holding, ...] = ()
    ended_evicted: int = 0

    def ended_after(self, serial: int) -> tuple[Holding, ...]:
        """Return the holdings that ended after the one with that serial."""
        if not self.ended or self.ended[-1].serial <= serial:
            return ()
        return tuple([one for one in self.ended if one.serial > serial])
