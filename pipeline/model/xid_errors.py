"""XID errors: reports of sources, and errors with the affected containers."""

from dataclasses import dataclass

from pipeline.model.claims import PartialRef
from pipeline.model.instant import Instant
from pipeline.model.pods import PodInfo


@dataclass(frozen=True, slots=True)
class XidReport:
    """An XID error, as a source reports it.

    Attributes:
        device: uuid of the GPU or MIG instance; empty where the source knows only `pci_bus_id`.
        pci_bus_id: PCI bus id of the GPU, in any of the usual spellings; empty where `device` is
            known.
        code: code of the error.
        at: when it happened, as far as known.
        pid: the process that the kernel log names, in the pid namespace of the host.
        process: name of that process, truncated by the kernel; empty if unknown.
        owner: the container that the process belongs to, by its cgroup; empty for a process outside
            all pods; None where it could not be read.
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
    """A container that was affected by an XID error: it held or used the device at that time.

    Attributes:
        subject: the container, without a container id.
        pod: what is known of its pod.
        device: uuid of the device that it held or used; for an error of a GPU with MIG instances,
            of the instance.
        holds: whether it held the device.
        uses: whether it had processes on the device, by the usage samples or the kernel log.
        caused: whether the kernel log names one of its processes.
    """

    subject: PartialRef
    pod: PodInfo | None
    device: str
    holds: bool
    uses: bool
    caused: bool = False


@dataclass(frozen=True, slots=True)
class XidError:
    """An XID error and the affected containers.

    Reports of two sources with the same code and device within a few seconds are one error: the
    kernel log may add a process to what NVML reported. The error keeps its `serial` then.

    Attributes:
        serial: number of the error since podgpu started, from 1.
        revision: how often information was added to the error; 0 at first.
        device: uuid.
        code: code of the error.
        at: when it happened.
        victims: the affected containers, sorted by subject. Where the MIG instance is unknown, the
            containers of all instances of the GPU are included.
        pid: the process that the kernel log names; None without one.
        process: name of that process; empty if unknown.
    """

    serial: int
    device: str
    code: int
    at: Instant
    victims: tuple[XidVictim, ...]
    pid: int | None = None
    process: str = ""
    revision: int = 0
