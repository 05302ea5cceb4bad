"""The parts of a story: what happens on a node, and what its sources report of it.

Times are nanoseconds of true time since the start of the story. A `ContainerName` is a string
`pod/container/uid`.
"""

from dataclasses import dataclass, field

S = 1_000_000_000
MS = 1_000_000
HOUR = 3600 * S

ContainerName = str


@dataclass(frozen=True)
class Process:
    """One process on a device in a usage sample.

    Attributes:
        container: its container; empty outside all pods; None if unknown.
        busy: nanoseconds since the previous sample; None if unknown.
        memory: bytes; None if unknown.
        running: whether it runs; otherwise it has ended since the previous sample.
        client: whether it is a client of an MPS server.
    """

    container: ContainerName | None
    busy: int | None = None
    memory: int | None = 0
    running: bool = True
    client: bool = False


@dataclass(frozen=True)
class Sample:
    """A usage sample of a device.

    Attributes:
        device: name of the device.
        at: when it was taken.
        since: time of the previous sample; None for the first one and after a break.
        processes: its processes.
        used: bytes in use; None if unknown.
        busy: nanoseconds since the previous sample; None if unknown.
        energy: the counter in millijoules; None if unknown, and for a MIG instance.
        valid_for: how long its memory is valid.
        listed: whether processes could be listed.
        mps: whether an MPS server runs there.
    """

    device: str
    at: int
    since: int | None
    processes: tuple[Process, ...] = ()
    used: int | None = 1 << 36
    busy: int | None = None
    energy: int | None = None
    valid_for: int = 15 * S
    listed: bool = True
    mps: bool = False


@dataclass(frozen=True)
class Action:
    """Something that happens at a time."""

    at: int


@dataclass(frozen=True)
class Started(Action):
    """podgpu is started.

    Attributes:
        running: the devices that each running container holds: its share, or None if unknown.
        allocated: the container to which the kubelet has allocated each device.
        devices: those that the driver shows.
        late: whether the runtime's source reports nothing until `RuntimeReported`.
    """

    running: dict[ContainerName, dict[str, float | None]] = field(default_factory=dict)
    allocated: dict[str, ContainerName] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    late: bool = False


@dataclass(frozen=True)
class RuntimeReported(Action):
    """The runtime's source reports for the first time since podgpu was started."""


@dataclass(frozen=True)
class Killed(Action):
    """podgpu gets SIGKILL, and is down then."""


@dataclass(frozen=True)
class Stopped(Action):
    """podgpu gets SIGTERM, and is down then."""


@dataclass(frozen=True)
class Rebooted(Action):
    """The machine reboots while podgpu is down."""


@dataclass(frozen=True)
class ClockSet(Action):
    """The wall clock is set by some nanoseconds."""

    by: int


@dataclass(frozen=True)
class ContainerChanged(Action):
    """A container runs and holds devices from now on, or (None) it has ended."""

    container: ContainerName
    holds: dict[str, float | None] | None


@dataclass(frozen=True)
class ContainersListed(Action):
    """The runtime's source reports all containers again."""


@dataclass(frozen=True)
class KubeletChanged(Action):
    """From now on the kubelet lists this container as the only holder of a device."""

    device: str
    container: ContainerName | None


@dataclass(frozen=True)
class PodListChanged(Action):
    """A file of the administrator names a holder of a device, whatever the kubelet reports."""

    device: str
    container: ContainerName | None


@dataclass(frozen=True)
class SamplesReported(Action):
    """A source reports samples that it has taken before.

    Attributes:
        at: when it reports them.
        by: the source.
    """

    samples: tuple[Sample, ...]
    by: str = "gpus"


@dataclass(frozen=True)
class ErrorReported(Action):
    """A source reports an XID error of a device, which happened at `when`."""

    device: str
    code: int
    when: int
    by: str = "gpus"


@dataclass(frozen=True)
class DevicesChanged(Action):
    """From now on the driver shows these devices."""

    devices: tuple[str, ...]


@dataclass(frozen=True)
class Reloaded(Action):
    """The configuration of a source or a sink changes while podgpu runs."""

    what: str


@dataclass(frozen=True)
class SourceFailed(Action):
    """A source fails for a while; its reports stay valid in between."""

    source: str


@dataclass(frozen=True)
class TimePassed(Action):
    """Nothing happens."""


@dataclass(frozen=True)
class Story:
    """A story.

    Attributes:
        seed: the seed that it was generated from.
        actions: its actions, in order of time.
        wall: what the wall clock shows at the start, in nanoseconds of Unix time.
        commit: the ledger's commit interval.
        sources: the names of the configured sources.
        claims: whether the kubelet allocates by ResourceClaims (DRA), not by device plugin ids.
    """

    seed: int
    actions: tuple[Action, ...]
    wall: int
    commit: int
    sources: tuple[str, ...] = ("gpus", "runtime", "kubelet", "file", "pods", "other", "kernel")
    claims: bool = False
