"""Who used how much of a device: what is looked at, and what it comes to for each container."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.model.pods import PodInfo
from pipeline.model.refs import PartialRef
from pipeline.model.time import Instant


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
        busy_ns: how long it kept the device busy; None where the driver doesn't say it by process.
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
    """

    subject: PartialRef
    pod: PodInfo | None
    start: Instant
    ended: Instant | None
    memory_bytes: int | None
    busy_ns: int | None
    held_ns: int
    energy_mj: int | None


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
        unheld_ns: of it, what nobody held, by part.
        energy_mj: what it used; None where that was never known.
        energy_unattributed_mj: of it, what falls to no container.
        forgotten_busy_ns: of containers that ended so long ago that they are kept no more.
        forgotten_held_ns: the same of held time.
        forgotten_energy_mj: the same of energy.
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


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Usage:
    """What was used of all devices; the same object while nothing of that changes.

    Attributes:
        devices: by uuid, in device order; none but those of the snapshot's layout.
        left_out: how many containers are left out of account now because there are too many; what
            they use stands as unattributed.
    """

    devices: Mapping[str, DeviceUsage]
    left_out: int = 0
