"""Usage in a span of time, as the ledger reports it."""

from dataclasses import dataclass
from typing import Final

from pipeline.model.claims import PartialRef
from pipeline.model.pods import StringPairs

_LAST: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """A container, with what was last known of its pod.

    Attributes:
        subject: the container, without a container id.
        owner_kind: kind of the workload that created the pod; empty without one.
        owner_name: name of that workload.
        labels: the labels of the pod that the configuration selects.
    """

    subject: PartialRef
    owner_kind: str = ""
    owner_name: str = ""
    labels: StringPairs = ()


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of one device by one container, or the unattributed usage.

    Attributes:
        device: uuid.
        container: the container; None for unattributed usage.
        held_ns: held time; for unattributed usage the time without a known holder, multiplied by
            the part of the device that had none.
        busy_ns: busy time; None where it was never known.
        energy_mj: energy in millijoules; None where it was never known.
        holdings: number of holdings that overlap the span.
        busy_partial: whether the busy time of some hours is known and that of others is not.
        energy_partial: whether the energy of some hours is known and that of others is not.
        held_without_busy_ns: the held time in hours whose busy time is unknown; 0 if it is never
            known.
        since_ns: start of the span of equal prices that the row belongs to, in nanoseconds of Unix
            time; 0 if prices do not change.
        unknown_ns: of unattributed usage, the part of `held_ns` for which the holder is unknown;
            None if only the `DeviceTotal` states it.
        contested_ns: see `ContainerUsage`, for `busy_ns` of this row; None where it is unknown for
            a part.
        switching_ns: the same.
    """

    device: str
    container: ContainerIdentity | None
    held_ns: int
    busy_ns: int | None
    energy_mj: int | None
    holdings: int = 0
    busy_partial: bool = False
    energy_partial: bool = False
    held_without_busy_ns: int = 0
    since_ns: int = 0
    unknown_ns: int | None = None
    contested_ns: int | None = None
    switching_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceTotal:
    """Total usage of one device: the exact sum of its `UsageRow` objects.

    Attributes:
        device: uuid.
        name: name for people: model, or MIG profile with the model of its GPU; empty if unknown.
        accounted_ns: the time with an account, held or not.
        gap_ns: the time without an account, between the first and the last sample in the span.
        busy_ns: busy time; None where it was never known.
        energy_mj: energy in millijoules; None where it was never known.
        unknown_ns: the part of the unattributed held time for which the holders are unknown. In the
            rest of that time the device was free.
        gpu: uuid of the physical GPU, which is that of the device unless it is a MIG instance;
            empty if unknown.
        index: index of the physical GPU; None if unknown.
        profile: profile of a MIG instance, the last part of `name`; empty for a GPU or if unknown.
        node: name of the node, in a report on several nodes.
        cluster: name of the cluster, in a report on several nodes.
    """

    device: str
    name: str
    accounted_ns: int
    gap_ns: int
    busy_ns: int | None
    energy_mj: int | None
    unknown_ns: int = 0
    gpu: str = ""
    index: int | None = None
    profile: str = ""
    node: str = ""
    cluster: str = ""

    @property
    def model(self) -> str:
        """Model of the physical GPU; empty if unknown."""
        return self.name.removesuffix(self.profile).rstrip()

    @property
    def order(self) -> tuple[int, str]:
        """Sort key: by index, then by uuid; devices without an index are last."""
        return (_LAST if self.index is None else self.index), self.device


@dataclass(frozen=True, slots=True)
class HourTotal:
    """Total usage of all devices in one hour.

    Attributes:
        start_ns: start of the hour, in nanoseconds of Unix time.
        accounted_ns: the time with an account, summed over all devices.
        unknown_ns: the part of it for which the holders are unknown.
        held_ns: held time of all containers.
        busy_ns: busy time; None where it was never known.
        energy_mj: energy in millijoules; None where it was never known.
    """

    start_ns: int
    accounted_ns: int
    unknown_ns: int
    held_ns: int
    busy_ns: int | None
    energy_mj: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """A span of time without an account.

    Attributes:
        device: uuid.
        start_ns: start of the gap, in nanoseconds of Unix time.
        end_ns: end of the gap, in nanoseconds of Unix time.
        reason: `down` (podgpu did not run) or `blind` (it ran, and no usage sample succeeded).
    """

    device: str
    start_ns: int
    end_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class UsageWindow:
    """Usage of all devices in a span of time.

    Attributes:
        node: name of the node; empty in a report on several nodes.
        start_ns: start of the span, in nanoseconds of Unix time: a full hour, at or before the
            requested start, or the start of the first counted time if that is later.
        end_ns: end of the span: the last sample, or a full hour.
        usage: sorted by device, then by container; the unattributed usage of a device last.
        totals: sorted by index, then by uuid.
        gaps: the gaps that overlap the span, the oldest first; empty in a report on several nodes.
        sample_data: what made the data up, such as `podgpu demo`; empty if the data was measured.
        gap_counts: reasons of gaps, each with the number of gaps; overlapping gaps of several
            devices of a node count once. None if they are not counted yet: see `gaps`.
    """

    node: str
    start_ns: int
    end_ns: int
    usage: tuple[UsageRow, ...]
    totals: tuple[DeviceTotal, ...]
    gaps: tuple[Gap, ...]
    sample_data: str = ""
    gap_counts: tuple[tuple[str, int], ...] | None = None

    @property
    def has_places(self) -> bool:
        """Whether its devices have the names of their nodes."""
        return any(one.node for one in self.totals)
