"""A node of which a source tells who uses the devices."""

from collections.abc import Iterable

from pipeline.model import (
    ContainerUsage,
    Device,
    DeviceUsage,
    DeviceUse,
    PartialRef,
    ProcessesSampled,
    ProcessUse,
    RunningContainer,
    Usage,
    XidsReported,
)
from tests.pipeline.join.cluster import GPUS, SOURCES, A, Cluster, uid_of
from tests.pipeline.usage.looking import S, adds_up, use


def ids(name: str, container_id: str = "1") -> PartialRef:
    """What stands in the cgroup of a process."""
    return PartialRef(uid=uid_of(name) if name else "", container_id=container_id)


def ran_by(
    owner: PartialRef | None, *, memory: int | None = 5, busy: int | None = S, kind: str = "compute"
) -> ProcessUse:
    return ProcessUse(1, 1, owner, kind, memory, busy)  # type: ignore[arg-type]


def running(name: str, container_id: str = "1", where: str = "main") -> RunningContainer:
    subject = PartialRef("ml", name, where, uid_of(name), container_id)
    return RunningContainer(subject)


class Watched(Cluster):
    """A node of which a source tells who uses the GPUs; all sources have spoken."""

    def __init__(self, devices: Iterable[Device] = GPUS) -> None:
        super().__init__(devices)
        for source in SOURCES:
            self.say(XidsReported(()), source, source)

    def look(
        self,
        when: float,
        *uses: DeviceUse,
        source: str = "gpus",
        heard: float | None = None,
    ) -> bool:
        self.seconds = when if heard is None else heard
        return self.say(ProcessesSampled(uses), source, source)

    def looks(self, *processes: ProcessUse, device: str = A, until: float = 10) -> None:
        """A first look, and one some seconds later, in which these are seen."""
        self.look(0, use(device, 0, None))
        busy = sum(one.busy_ns or 0 for one in processes)
        self.look(until, use(device, until, 0, *processes, used=100, busy=busy))

    def used(self) -> Usage:
        usage = self.snapshot().usage
        assert usage is not None
        for account in usage.devices.values():
            adds_up(account)
        return usage

    def account(self, device: str = A) -> DeviceUsage:
        return self.used().devices[device]

    def containers(self, device: str = A) -> list[tuple[str, ...]]:
        """Namespace, pod, container and uid of all in the account."""
        found = [one.subject for one in self.account(device).containers]
        return [(s.namespace, s.pod, s.container, s.uid) for s in found]

    def sole(self, device: str = A) -> ContainerUsage:
        [found] = self.account(device).containers
        return found
