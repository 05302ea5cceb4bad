"""What a story consists of: what happens on a node, and what its sources tell of that.

Moments are nanoseconds of true time since the beginning of the story. `Who` names a container.
"""

from dataclasses import dataclass, field

S = 1_000_000_000
MS = 1_000_000
HOUR = 3600 * S

Who = str


@dataclass(frozen=True)
class Work:
    """One process on a device at a look.

    Attributes:
        who: its container; empty outside all pods; None where nobody can say.
        busy: nanoseconds since the look before; None where the driver doesn't say.
        memory: bytes; None where the driver doesn't say.
        there: it runs; else it has ended since the look before.
        client: of an MPS server.
    """

    who: Who | None
    busy: int | None = None
    memory: int | None = 0
    there: bool = True
    client: bool = False


@dataclass(frozen=True)
class Look:
    """A look at a device.

    Attributes:
        device: which.
        at: when.
        since: the look before; None at the first one and after a break.
        works: its processes.
        used: bytes in use; None where unknown.
        busy: nanoseconds since then; None where unknown.
        energy: the counter, millijoules; None where unknown, and of a MIG instance.
        good_for: how long its memory stands.
        listed: processes could be listed.
        mps: an MPS server works there.
    """

    device: str
    at: int
    since: int | None
    works: tuple[Work, ...] = ()
    used: int | None = 1 << 36
    busy: int | None = None
    energy: int | None = None
    good_for: int = 15 * S
    listed: bool = True
    mps: bool = False


@dataclass(frozen=True)
class Act:
    """Something that happens, at a moment."""

    at: int


@dataclass(frozen=True)
class Begun(Act):
    """podgpu is started.

    Attributes:
        running: what each container that runs holds: the part of each device, None if not told.
        given: which device the kubelet has given to which container alone.
        devices: those that the driver shows.
        late: the runtime's source says nothing until `Spoken`.
    """

    running: dict[Who, dict[str, float | None]] = field(default_factory=dict)
    given: dict[str, Who] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    late: bool = False


@dataclass(frozen=True)
class Spoken(Act):
    """The runtime's source speaks for the first time since podgpu was started."""


@dataclass(frozen=True)
class Killed(Act):
    """SIGKILL. Then podgpu is down."""


@dataclass(frozen=True)
class Stopped(Act):
    """SIGTERM. Then podgpu is down."""


@dataclass(frozen=True)
class Rebooted(Act):
    """The machine is booted anew, while podgpu is down."""


@dataclass(frozen=True)
class Set(Act):
    """The wall clock is set, by so many nanoseconds."""

    by: int


@dataclass(frozen=True)
class Running(Act):
    """From now on a container runs and holds this; None: it has ended."""

    who: Who
    holds: dict[str, float | None] | None


@dataclass(frozen=True)
class Listed(Act):
    """The runtime's source tells of all containers anew."""


@dataclass(frozen=True)
class Given(Act):
    """From now on the kubelet's list says that this container alone has the device."""

    device: str
    who: Who | None


@dataclass(frozen=True)
class Filed(Act):
    """An administrator's file says that somebody has a device, whatever the kubelet says."""

    device: str
    who: Who | None


@dataclass(frozen=True)
class Looked(Act):
    """The source tells of looks that it has made. `at` is when it tells of them."""

    looks: tuple[Look, ...]
    by: str = "gpus"


@dataclass(frozen=True)
class Erred(Act):
    """The driver tells of an XID error on a device, which happened at `when`."""

    device: str
    code: int
    when: int
    by: str = "gpus"


@dataclass(frozen=True)
class Shown(Act):
    """The driver shows these devices from now on."""

    devices: tuple[str, ...]


@dataclass(frozen=True)
class Reloaded(Act):
    """The configuration of a source or a sink changes while podgpu runs."""

    what: str


@dataclass(frozen=True)
class Failed(Act):
    """A source can't do its work for a while; its words stand meanwhile."""

    source: str


@dataclass(frozen=True)
class Waited(Act):
    """Nothing happens."""


@dataclass(frozen=True)
class Story:
    """A story.

    Attributes:
        seed: what it was made of.
        acts: in the order of their moments.
        wall: what the wall clock shows at the beginning, nanoseconds of Unix time.
        commit: the ledger's commit interval.
        sources: the names of those that are configured.
        claims: the kubelet gives out ResourceClaims (DRA), and no ids of a device plugin.
    """

    seed: int
    acts: tuple[Act, ...]
    wall: int
    commit: int
    sources: tuple[str, ...] = ("gpus", "runtime", "kubelet", "file", "pods", "other", "kernel")
    claims: bool = False
