"""Types that all parts of podgpu share: readings, devices, claims, pods, events and snapshots.

All types are immutable, and this package imports the standard library only. Sources emit events of
these types, the join turns events into a `Snapshot`, and sinks read snapshots. Nothing here does
I/O, reads a clock or knows a wire format.
"""

from pipeline.model.claims import (
    Claim,
    ClaimedDevice,
    Evidence,
    Origin,
    PartialRef,
    RawDeviceId,
    Scheme,
)
from pipeline.model.devices import Device, MigPlace, placement_name
from pipeline.model.events import (
    AdvertisedResource,
    ClaimsReplaced,
    ClockTicked,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    DeviceAliasesReplaced,
    DeviceJobs,
    DevicesDiscovered,
    Envelope,
    Event,
    Hint,
    JobsReplaced,
    PodDeleted,
    PodsReplaced,
    PodUpserted,
    ProcessesSampled,
    Resolves,
    ResourcesAdvertised,
    SamplesTaken,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    TopologyRead,
    TotalsRestored,
    XidsReported,
)
from pipeline.model.holders import Access, Attribution, Holder, only_holder
from pipeline.model.instant import NS, Instant
from pipeline.model.owner_facts import owner_facts
from pipeline.model.owners import (
    CONTAINER_FACTS,
    JOB_FACTS,
    ContainerRuntime,
    OwnerKind,
    container_uid,
    job_container_id,
    job_uid,
    owner_kind,
    owner_text,
    uid_prefixes,
)
from pipeline.model.pods import (
    Pod,
    PodContainer,
    PodInfo,
    ResourceClaim,
    RunningContainer,
    StringPairs,
)
from pipeline.model.readings import Attrs, GpuProcess, ProcessList, Reading, Value
from pipeline.model.snapshot import (
    Layout,
    ResourceCount,
    Series,
    Snapshot,
    SourceState,
)
from pipeline.model.split_error import WINDOW_NS, split_error_ns
from pipeline.model.topology_facts import Level, TopologyCard, TopologyPair
from pipeline.model.usage import ContainerUsage, DeviceUsage, DeviceUse, Holding, ProcessUse, Usage
from pipeline.model.xid_errors import XidError, XidReport, XidVictim
