"""What the join publishes and sinks read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.model.availability import Availability
from pipeline.model.claims import RawDeviceId
from pipeline.model.holders import Attribution
from pipeline.model.instant import Instant
from pipeline.model.readings import Attrs, GpuProcess, Reading
from pipeline.model.topology_tree import Topology
from pipeline.model.usage import Usage
from pipeline.model.xid_errors import XidError


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Series:
    """A place for readings: one field of one device, with the attributes that tell it apart."""

    field: str
    attrs: Attrs
    attribution: Attribution


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """How many devices of this node stand behind an extended resource, each counted once.

    Attributes:
        present: GPUs or MIG instances that the driver shows.
        advertised: those that the kubelet offers, held or free; None when nobody says.
        allocated: those that the kubelet has given to containers; None when nobody says.
    """

    present: int
    advertised: int | None
    allocated: int | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Layout:
    """Which series there are and whose they are; the same object while nothing of that changes.

    Attributes:
        series: grouped by field in the order of the catalogue, then by device, then by attributes.
        attributions: by device uuid, in device order; every known device, with readings or without.
        resources: by name of the extended resource, sorted.
    """

    series: tuple[Series, ...]
    attributions: Mapping[str, Attribution]
    resources: Mapping[str, ResourceCount] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What the join knows of a source.

    Attributes:
        kind: the source's kind.
        order: its place in the configuration file.
        up: the last thing heard was not a loss.
        has_reported: it has said something, or was lost, since it was added.
        reason: why it is down; empty when it is up.
        down_since: when it last said that it is down; None when it is up.
        events: how many events it emitted, since podgpu started.
        last_event_at: when its last event was emitted; None before the first.
        confirmed_at: when it last stood by its claims; None if it makes none.
        devices: how many it enumerated last; None if it never did.
        unresolved: device ids in its claims that fit no known device.
        unresolved_total: how often such an id turned up, since podgpu started.
    """

    kind: str
    order: int
    up: bool = False
    has_reported: bool = False
    reason: str = ""
    down_since: Instant | None = None
    events: int = 0
    last_event_at: Instant | None = None
    confirmed_at: Instant | None = None
    devices: int | None = None
    unresolved: tuple[RawDeviceId, ...] = ()
    unresolved_total: int = 0


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Snapshot:
    """Everything that is known at one moment.

    Attributes:
        at: when the join made it.
        layout: which series there are, and whose.
        readings: one for each of `layout.series`, in the same order.
        fresh: positions in `readings` that were read since the snapshot before. A sink that records
            history emits these alone, with the holders bound here: a change of holders makes a
            snapshot of its own with nothing fresh in it, so no old reading goes to a new pod.
        starts: for each of `readings` that is a counter's, since when it has counted without a
            break, as far as is known: the moment of the first reading, or of the first one after it
            was set back. Its value at that moment is unknown and need not have been 0. None for
            all others. The same object while nothing of that changes.
        processes: by device uuid, for devices whose processes could be listed.
        sources: by name, in the order of the configuration.
        topology: how the node's GPUs are joined; None where no source tells. The same object while
            nothing of that changes.
        availability: what is free of them by the holders in `layout`; None where no topology is
            known, the source that told it is down, or it isn't known who holds what: no source that
            lists all holders stands by its word, or one of them has a device that nobody can name.
            The same object while nothing of that changes.
        topology_source: the name of the source that told the topology; empty where none tells.
        usage: who used how much of which device; None where no source tells.
        xids: XID errors of the last minutes, by `serial`, and whom they struck; bounded. The same
            object while nothing of that changes.
    """

    at: Instant
    layout: Layout
    readings: tuple[Reading, ...]
    fresh: tuple[int, ...]
    starts: tuple[Instant | None, ...] = ()
    processes: Mapping[str, tuple[GpuProcess, ...]] = field(default_factory=dict)
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    topology: Topology | None = None
    availability: Availability | None = None
    topology_source: str = ""
    usage: Usage | None = None
    xids: tuple[XidError, ...] = ()

    @property
    def topology_is_current(self) -> bool:
        """Whether a topology is known, and the source that told it does its work."""
        state = self.sources.get(self.topology_source)
        return self.topology is not None and state is not None and state.up
