"""What was used in a span of time, as the ledger tells it."""

from dataclasses import dataclass

from pipeline.model.container_ref import PartialRef
from pipeline.model.pods import StringPairs


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """Whose use it is: a container, with what was last known of its pod.

    Attributes:
        subject: the container, without a container id.
        owner_kind: kind of the workload that made the pod; empty without one.
        owner_name: name of that workload.
        labels: those of the pod that podgpu is told.
    """

    subject: PartialRef
    owner_kind: str = ""
    owner_name: str = ""
    labels: StringPairs = ()


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one container, or nobody, had of one device.

    Attributes:
        device: uuid.
        container: the container; None for what belongs to none.
        held_ns: held time; of nobody, the time for which nobody held the device, by part.
        busy_ns: busy time; None where it was never known.
        energy_mj: energy in millijoules; None where it was never known.
        holdings: how many holdings lie in the span, or reach into it.
    """

    device: str
    container: ContainerIdentity | None
    held_ns: int
    busy_ns: int | None
    energy_mj: int | None
    holdings: int = 0


@dataclass(frozen=True, slots=True)
class DeviceTotal:
    """The whole of what was used of one device: the sum of its `UsageRow`, exactly.

    Attributes:
        device: uuid.
        name: for people: model, or MIG profile with the model of its GPU; empty if unknown.
        accounted_ns: the time of which there is an account: what was held and what wasn't.
        gap_ns: the time of which there is none, between the first and the last look in the span.
        busy_ns: busy time; None where it was never known.
        energy_mj: energy in millijoules; None where it was never known.
        unknown_ns: of the time that no container held, the part for which it isn't known who held
            the device. What is left of it was free.
    """

    device: str
    name: str
    accounted_ns: int
    gap_ns: int
    busy_ns: int | None
    energy_mj: int | None
    unknown_ns: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A span of time of which there is no account, stated and not guessed.

    Attributes:
        device: uuid.
        start_ns: in nanoseconds of Unix time.
        end_ns: likewise.
        reason: `down` (podgpu didn't run) or `blind` (it ran, and no look succeeded).
    """

    device: str
    start_ns: int
    end_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class UsageWindow:
    """What was used in a span of time.

    Attributes:
        node: the node's name.
        start_ns: beginning of the span, in nanoseconds of Unix time: a full hour, at or before what
            was asked for.
        end_ns: its end: the last look, or a full hour.
        usage: by device, then container; nobody's last.
        totals: by device.
        gaps: those that touch the span, the oldest first.
    """

    node: str
    start_ns: int
    end_ns: int
    usage: tuple[UsageRow, ...]
    totals: tuple[DeviceTotal, ...]
    gaps: tuple[Gap, ...]
