"""XID errors: what a source says of one, and whom it struck."""

from dataclasses import dataclass

from pipeline.model.container_ref import PartialRef
from pipeline.model.instant import Instant
from pipeline.model.pods import PodInfo


@dataclass(frozen=True, slots=True)
class XidReport:
    """An XID error, as a source tells of it.

    Attributes:
        device: uuid of the GPU or MIG instance; empty where the source knows only `pci_bus_id`.
        pci_bus_id: of the GPU, in any of the usual spellings; empty where `device` is known.
        code: of the error.
        at: when it happened, as well as is known.
        pid: the process that the kernel log names, in the pid namespace of the host.
        process: that process's name, cut by the kernel; empty where nobody says.
        owner: the container whose process it is, by its cgroup; an empty one is a process outside
            all pods; None where nobody could look.
    """

    device: str
    pci_bus_id: str
    code: int
    at: Instant
    pid: int | None = None
    process: str = ""
    owner: PartialRef | None = None


@dataclass(frozen=True, slots=True)
class XidVictim:
    """A container that was on a device when an XID error happened there.

    Attributes:
        subject: the container, without a container id.
        pod: what is known of its pod.
        device: the device that it held or used: of a GPU that carries MIG instances its instance.
        holds: it held the device.
        uses: it had processes there, at the last look.
        caused: the kernel log names one of its processes.
    """

    subject: PartialRef
    pod: PodInfo | None
    device: str
    holds: bool
    uses: bool
    caused: bool = False


@dataclass(frozen=True, slots=True)
class XidError:
    """An XID error and whom it struck.

    What two sources tell of within a few seconds with the same code, of the same device, is one
    error: the kernel log may add a process to what NVML has told; it keeps its `serial` then.

    Attributes:
        serial: number of the error since podgpu started, from 1.
        revision: how often something was added to it: 0 at first.
        device: uuid.
        code: of the error.
        at: when it happened.
        victims: sorted by subject; those of the whole GPU where it isn't known on which instance.
        pid: the process that the kernel log names; None where there is none.
        process: its name; empty where nobody says.
    """

    serial: int
    device: str
    code: int
    at: Instant
    victims: tuple[XidVictim, ...]
    pid: int | None = None
    process: str = ""
    revision: int = 0
