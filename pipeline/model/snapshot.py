"""Snapshots: what the join publishes and sinks read."""

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
    """A series of readings: one field of one device, with the attributes that distinguish it."""

    field: str
    attrs: Attrs
    attribution: Attribution


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """How many devices of this node an extended resource has, each counted once.

    Attributes:
        present: GPUs or MIG instances that the driver shows.
        advertised: devices that the kubelet offers, held or free; None if unknown.
        allocated: devices that the kubelet has allocated to containers; None if unknown.
    """

    present: int
    advertised: int | None
    allocated: int | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Layout:
    """The set of series and their attributions; the same object as long as nothing in it changes.

    Attributes:
        series: grouped by field in the order of the catalogue, then by device, then by attributes.
        attributions: attributions of all known devices, by device uuid, in device order. A device
            without readings is included.
        resources: numbers of devices by name of the extended resource, sorted.
        jobs: ids of the jobs of a batch system that use a device, by device uuid; a device without
            jobs is missing.
    """

    series: tuple[Series, ...]
    attributions: Mapping[str, Attribution]
    resources: Mapping[str, ResourceCount] = field(default_factory=dict)
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceState:
    """State of a source, as the join knows it.

    Attributes:
        kind: kind of the source.
        order: position of the source in the configuration file.
        up: whether the source works: it has reported, and its last event was not `SourceLost`.
        has_reported: whether it has emitted an event, or was lost, since it was added.
        reason: why it is down; empty when it is up.
        down_since: when it was last reported as down; None while it is up or has not reported.
        events: number of events that it has emitted since podgpu started.
        last_event_at: when its last event was emitted; None before the first.
        confirmed_at: when it last confirmed its claims, pods or containers; None if it never did.
        devices: number of devices that it enumerated last; None if it never did.
        unresolved: device ids in its claims that match no known device.
        unresolved_total: how often an unresolved id appeared since podgpu started.
        relayed_by: name of the source that emits its events, as from a recording; empty for a
            source of the configuration.
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
    relayed_by: str = ""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Snapshot:
    """Everything that is known at one moment.

    Attributes:
        at: when the join made it.
        layout: the series and their attributions.
        readings: one for each of `layout.series`, in the same order.
        fresh: indexes of the `readings` that were read since the previous snapshot. A sink that
            records history emits only these, with the holders of this snapshot. A change of holders
            makes a snapshot without fresh readings, so that no old reading is given to a new pod.
        starts: for each of `readings` the time since which a counter has counted without a reset,
            as far as known: the time of its first reading, or of the first one after a reset. The
            counter's value at that time is unknown and need not have been 0. None for readings
            that are not of counters. The same object as long as nothing in it changes.
        processes: process lists by device uuid, for devices whose processes could be listed.
        sources: states of the sources by name, in the order of the configuration.
        topology: how the node's GPUs are connected; None where no source reports it. The same
            object as long as nothing in it changes.
        availability: which of these GPUs are free, by the holders in `layout`. None where no
            topology is known, the source of the topology is down, or the holders are unknown: no
            source that lists all holders has a valid report, or it cannot be decided which device
            a container holds. The same object as long as nothing in it changes.
        topology_source: name of the source that reported the topology; empty without one.
        usage: the usage accounts of devices and containers; None where no source samples usage.
        xids: XID errors of the last minutes with the affected containers, by `serial`; limited in
            number. The same object as long as nothing in it changes.
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
        """Whether a topology is known and the source that reported it is up."""
        state = self.sources.get(self.topology_source)
        return self.topology is not None and state is not None and state.up
