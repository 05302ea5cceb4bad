"""Events: what sources report to the join. An event's name is a noun and what happened to it.

`SamplesTaken` carries readings. The other events carry devices, claims, pods, containers, jobs,
usage samples, XID errors, topology or resources, or say that a source was added, is down or was
removed. The runtime emits some of these events. A `...Replaced` event contains everything that its
source knows of that kind. To apply it twice changes nothing.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.model.claims import Claim, RawDeviceId
from pipeline.model.devices import Device
from pipeline.model.instant import Instant
from pipeline.model.pods import Pod, RunningContainer
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
    """The result of one round of sampling.

    Attributes:
        readings: new readings. An earlier reading of another series stays valid until it expires.
        processes: complete lists, one for each device whose processes could be listed.
    """

    readings: tuple[Reading, ...]
    processes: tuple[ProcessList, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessesSampled:
    """Usage samples: which processes used the devices since the previous sample.

    Attributes:
        uses: one for each device that could be sampled. A GPU with MIG instances is in the same
            event as its instances, after them.
    """

    uses: tuple[DeviceUse, ...]


@dataclass(frozen=True, slots=True)
class XidsReported:
    """XID errors that have happened.

    Attributes:
        reports: the errors, in the order in which they happened.
    """

    reports: tuple[XidReport, ...]


@dataclass(frozen=True, slots=True)
class TotalsRestored:
    """The usage accounts at the end of podgpu's last run. podgpu emits it at its start.

    Attributes:
        devices: the account of each device, with its containers and their holdings. The time
            between its `at` and the first usage sample is a gap. The monotonic part of each instant
            is calculated: the present time less the time that has passed by the wall clock.
    """

    devices: tuple[DeviceUsage, ...]


@dataclass(frozen=True, slots=True)
class ClaimsReplaced:
    """All claims of a source. The same claims again confirm that they are still valid.

    Attributes:
        claims: all of them; empty means that no container holds anything.
        good_for_ns: how long the claims stay valid without a confirmation.
        complete: whether the claims name every pod to which the kubelet has allocated devices,
            except pods in which only init containers have any.
    """

    claims: tuple[Claim, ...]
    good_for_ns: int
    complete: bool = False


@dataclass(frozen=True, slots=True)
class PodsReplaced:
    """All pods of the node, ended ones included. The same pods again are a confirmation.

    Attributes:
        pods: all of them, each uid once.
        good_for_ns: how long the source's reports about pods stay valid without a confirmation,
            later `PodUpserted` and `PodDeleted` included.
    """

    pods: tuple[Pod, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class PodUpserted:
    """A pod was added or changed. It is ignored before the source's first `PodsReplaced`."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod was deleted from the API server. It is ignored before the first `PodsReplaced`."""

    uid: str


@dataclass(frozen=True, slots=True)
class ContainersReplaced:
    """All containers, or jobs, that run on the node. The same ones again are a confirmation.

    Attributes:
        containers: all of them, each container id once.
        good_for_ns: how long the source's reports about containers stay valid without a
            confirmation, later `ContainerStarted` and `ContainerStopped` included.
    """

    containers: tuple[RunningContainer, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """A container was created, started or changed. It is ignored before a `ContainersReplaced`."""

    container: RunningContainer


@dataclass(frozen=True, slots=True)
class ContainerStopped:
    """A container has ended. It is ignored before the source's first `ContainersReplaced`.

    Attributes:
        container_id: the runtime's id.
    """

    container_id: str


@dataclass(frozen=True, slots=True)
class DeviceAliasesReplaced:
    """All further names of devices that the source knows.

    Attributes:
        aliases: pairs of a name and the device that it means: its uuid, or `MigPlace.placement` for
            an instance that is created on demand.
        since: each name whose meaning can change, with a time. Since that time the name has
            certainly had its present meaning; None where the time is unknown. A name that is not in
            `since` always has its present meaning.
    """

    aliases: tuple[tuple[RawDeviceId, str], ...]
    since: tuple[tuple[RawDeviceId, Instant | None], ...] = ()


@dataclass(frozen=True, slots=True)
class AdvertisedResource:
    """An extended resource that the kubelet advertises.

    Attributes:
        resource: name of the resource, such as `nvidia.com/gpu`.
        devices: the healthy devices, held or free, by the device plugin's ids.
    """

    resource: str
    devices: tuple[RawDeviceId, ...]


@dataclass(frozen=True, slots=True)
class ResourcesAdvertised:
    """All extended resources that the kubelet advertises now.

    Attributes:
        resources: each name once.
        good_for_ns: how long the report stays valid without a confirmation.
    """

    resources: tuple[AdvertisedResource, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class TopologyRead:
    """The connections between all physical GPUs that the source can enumerate now.

    Attributes:
        cards: each uuid once.
        pairs: each pair of cards at most once, in either direction; a missing pair is unknown.
    """

    cards: tuple[TopologyCard, ...]
    pairs: tuple[TopologyPair, ...]


@dataclass(frozen=True, slots=True)
class DeviceJobs:
    """The jobs of a batch system that use a GPU or a MIG instance.

    Attributes:
        gpu: NVML's index of the GPU.
        gpu_instance: id of the GPU instance; None for a whole GPU.
        jobs: ids of the jobs, each once, in the order of the report.
    """

    gpu: int
    gpu_instance: int | None
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobsReplaced:
    """All jobs of a batch system that use devices of the node.

    Unlike claims, they do not say who holds a device: they are shown next to the holders.

    Attributes:
        devices: each device at most once; devices without jobs may be missing.
        good_for_ns: how long the report stays valid without a confirmation.
    """

    devices: tuple[DeviceJobs, ...]
    good_for_ns: int


Resolves: TypeAlias = Literal["devices", "names", "claims", "owners"]


@dataclass(frozen=True, slots=True)
class SourceAdded:
    """The runtime starts a source. The runtime emits it, before the source's own events.

    Attributes:
        order: position of the source in the configuration file. If two sources read the same field
            of the same device, the readings of the earlier source are used.
        resolves: what other parts wait for: the source enumerates `devices` or reports `names` of
            devices, which are needed to resolve ids; or it reports the `claims` of the kubelet,
            which are needed to know which devices are left for a scheduler; or it lists all
            `owners` of its kind, jobs or containers without pods, as `ContainersReplaced`, without
            which no device is known to be free.
    """

    order: int
    resolves: tuple[Resolves, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source is down. Its earlier reports stay valid until they expire.

    Attributes:
        reason: why, as a text for people.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    """The source was removed from the configuration. The join removes all its reports."""


@dataclass(frozen=True, slots=True)
class ClockTicked:
    """Time has passed while no source emitted an event, so that old reports can expire.

    Every envelope has a time. The join knows the time from envelopes only, and so stays pure.
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
    | JobsReplaced
    | SourceAdded
    | SourceLost
    | SourceRemoved
    | ClockTicked
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event in the inbox, with its source and time.

    Attributes:
        source: name of the source in the configuration; empty for `ClockTicked`.
        kind: kind of the source.
        seq: number of the envelope in the inbox, from 1.
        at: when the event was emitted.
        relayed_by: the source that passed on another source's event; empty for a source's own
            event. Reports of a relayed source are removed together with the source that relays it.
        loop_delay_ns: sum of the delays in which the event loop was too busy to receive events. A
            delay counts completely if it still lasts or ended in the ten seconds before this event.
            Readings and reports about claims, pods, containers and resources expire later by this
            time; XID errors and usage do not.
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
    """A request of the join to sources to check again soon.

    Attributes:
        devices: uuids of devices whose holders changed; for a MIG instance its own uuid.
        pods: uids of pods with a change for which the kubelet may have allocated devices.
        sources: names of the sources that caused the hint; empty if the end of a pod caused it and
            not a change of claims.
    """

    devices: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
