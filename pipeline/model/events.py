"""What sources tell the join: a noun and what happened to it.

Facts (`SamplesTaken`) describe devices; all others are dimensions. A `...Replaced` event is the
whole of what its source knows, so that applying it twice changes nothing.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.model.claims import Claim, RawDeviceId
from pipeline.model.containers import RunningContainer
from pipeline.model.devices import Device
from pipeline.model.instant import Instant
from pipeline.model.pods import Pod
from pipeline.model.readings import ProcessList, Reading
from pipeline.model.topology_facts import TopologyCard, TopologyPair
from pipeline.model.usage import DeviceUsage, DeviceUse
from pipeline.model.xid_errors import XidReport


@dataclass(frozen=True, slots=True)
class DevicesDiscovered:
    """All devices that the source can enumerate now, MIG instances included."""

    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class SamplesTaken:
    """What one round of sampling read.

    Attributes:
        readings: a patch: those not named stand until they are no longer good.
        processes: whole lists, one for each device whose processes could be listed.
    """

    readings: tuple[Reading, ...]
    processes: tuple[ProcessList, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessesSampled:
    """Who used the devices since the look before.

    Attributes:
        uses: one for each device that could be looked at; a device whose GPU carries MIG instances
            comes in the same event as those, after them.
    """

    uses: tuple[DeviceUse, ...]


@dataclass(frozen=True, slots=True)
class XidsReported:
    """XID errors that have happened.

    Attributes:
        reports: in the order of their happening.
    """

    reports: tuple[XidReport, ...]


@dataclass(frozen=True, slots=True)
class TotalsRestored:
    """The accounts as they stood when podgpu last ran, before any source's first word.

    Attributes:
        devices: one for each device, with its containers and their holdings. What lies between its
            `at` and the first look is a gap. The monotonic part of each moment is that of now, less
            what the wall clock says has passed.
    """

    devices: tuple[DeviceUsage, ...]


@dataclass(frozen=True, slots=True)
class ClaimsReplaced:
    """Every claim of the source. Said again unchanged, it confirms that they still stand.

    Attributes:
        claims: all of them; empty means that nobody holds anything.
        good_for_ns: how long the claims stand when the source falls silent.
        complete: every pod to which the kubelet has given devices is named in it, but for those
            whose init containers alone have any.
    """

    claims: tuple[Claim, ...]
    good_for_ns: int
    complete: bool = False


@dataclass(frozen=True, slots=True)
class PodsReplaced:
    """Every pod of the node, ended ones too. Said again unchanged, it confirms that it still holds.

    Attributes:
        pods: all of them, each uid once.
        good_for_ns: how long the source's word on pods stands when it falls silent, that of later
            `PodUpserted` and `PodDeleted` too.
    """

    pods: tuple[Pod, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class PodUpserted:
    """A pod came or changed. Only after a `PodsReplaced`."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """The pod is gone from the API server. Only after a `PodsReplaced`."""

    uid: str


@dataclass(frozen=True, slots=True)
class ContainersReplaced:
    """Every container that runs on the node. Said again unchanged, it confirms that they do.

    Attributes:
        containers: all of them, each container id once.
        good_for_ns: how long the source's word on containers stands when it falls silent, that of
            later `ContainerStarted` and `ContainerStopped` too.
    """

    containers: tuple[RunningContainer, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """A container was made, has started, or is better known. Only after a `ContainersReplaced`."""

    container: RunningContainer


@dataclass(frozen=True, slots=True)
class ContainerStopped:
    """The container has ended. Only after a `ContainersReplaced`.

    Attributes:
        container_id: the runtime's.
    """

    container_id: str


@dataclass(frozen=True, slots=True)
class DeviceAliasesReplaced:
    """Every further name of a device that the source knows.

    Attributes:
        aliases: pairs of the name and of the uuid of the device that goes by it, or of the
            `MigPlace.placement` of one that is made when it is needed.
        since: for the names whose meaning can change, since when at the latest each has had this
            meaning; None where that is unknown. A name that is missing here always has the meaning
            it has now.
    """

    aliases: tuple[tuple[RawDeviceId, str], ...]
    since: tuple[tuple[RawDeviceId, Instant | None], ...] = ()


@dataclass(frozen=True, slots=True)
class AdvertisedResource:
    """An extended resource that the kubelet offers.

    Attributes:
        resource: its name, such as `nvidia.com/gpu`.
        devices: the healthy ones, held or free, as the device plugin names them.
    """

    resource: str
    devices: tuple[RawDeviceId, ...]


@dataclass(frozen=True, slots=True)
class ResourcesAdvertised:
    """All extended resources that the kubelet offers now.

    Attributes:
        resources: each name once.
        good_for_ns: how long this stands when the source falls silent.
    """

    resources: tuple[AdvertisedResource, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class TopologyRead:
    """How all physical GPUs are joined that the source can enumerate now.

    Attributes:
        cards: each uuid once.
        pairs: each pair of them at most once, in either direction; one that is left out is unknown.
    """

    cards: tuple[TopologyCard, ...]
    pairs: tuple[TopologyPair, ...]


Resolves: TypeAlias = Literal["devices", "names", "claims"]


@dataclass(frozen=True, slots=True)
class SourceAdded:
    """The runtime starts a source. Emitted by the runtime, before the source's own events.

    Attributes:
        order: place in the configuration file; of two sources that read the same field of the same
            device the earlier one wins.
        resolves: what it tells that others wait for: it enumerates devices or names them, by which
            ids are resolved; or it tells the claims that the kubelet gave out, without which it
            isn't known what is left for a scheduler.
    """

    order: int
    resolves: tuple[Resolves, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source can't do its work now; what it said before stands until it is no longer good."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    """The source left the configuration: its devices, readings and claims are withdrawn."""


@dataclass(frozen=True, slots=True)
class ClockTicked:
    """Time went on while every source was silent: what is no longer good has to go all the same.

    Every envelope brings its time along; the join knows of time from envelopes alone, and so stays
    pure.
    """


Event: TypeAlias = (
    DevicesDiscovered
    | SamplesTaken
    | ProcessesSampled
    | XidsReported
    | TotalsRestored
    | ClaimsReplaced
    | PodsReplaced
    | PodUpserted
    | PodDeleted
    | ContainersReplaced
    | ContainerStarted
    | ContainerStopped
    | DeviceAliasesReplaced
    | ResourcesAdvertised
    | TopologyRead
    | SourceAdded
    | SourceLost
    | SourceRemoved
    | ClockTicked
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event on its way through the inbox.

    Attributes:
        source: name of the source in the configuration.
        kind: the source's kind.
        seq: number of the envelope in the inbox, from 1.
        at: when the event was emitted.
        relayed_by: the source that relayed another's event; empty for a source's own. What comes
            via a source lives and ends with it.
        loop_delay_ns: for how much of the time before it the event loop was too busy for sources to
            be heard. What has been silent for longer than it may be is given so much more time.
    """

    source: str
    kind: str
    seq: int
    at: Instant
    event: Event
    relayed_by: str = ""
    loop_delay_ns: int = 0


@dataclass(frozen=True, slots=True)
class Hint:
    """The join's advice to sources that it may be worth looking again.

    Attributes:
        devices: uuids of devices that changed hands; for a MIG instance its own, not the parent's.
        pods: uids of pods in which something happened that the kubelet may have given devices for.
        sources: names of the sources whose claims led to this; none if it was no claim that changed
            but a pod that ended.
    """

    devices: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
