"""A node with usage samples and XID errors, for tests of accounts and process owners."""

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
from tests.pipeline.usage.samples import S, adds_up, use


def cgroup_owner(name: str, container_id: str = "1") -> PartialRef:
    """Return the owner that the cgroup of a process names: pod UID and container id."""
    return PartialRef(uid=uid_of(name) if name else "", container_id=container_id)


def process_of(
    owner: PartialRef | None, *, memory: int | None = 5, busy: int | None = S, kind: str = "compute"
) -> ProcessUse:
    return ProcessUse(1, 1, owner, kind, memory, busy)  # type: ignore[arg-type]


def running(name: str, container_id: str = "1", where: str = "main") -> RunningContainer:
    subject = PartialRef("ml", name, where, uid_of(name), container_id)
    return RunningContainer(subject)


class SampledCluster(Cluster):
    """A node with usage samples of its GPUs. All its sources have reported."""

    def __init__(self, devices: Iterable[Device] = GPUS) -> None:
        super().__init__(devices)
        for source in SOURCES:
            self.say(XidsReported(()), source, source)

    def sample(
        self,
        when: float,
        *uses: DeviceUse,
        source: str = "gpus",
        received: float | None = None,
    ) -> bool:
        self.seconds = when if received is None else received
        return self.say(ProcessesSampled(uses), source, source)

    def take_samples(self, *processes: ProcessUse, device: str = A, until: float = 10) -> None:
        """Take two samples, at 0 and at `until`. The processes are in the second one."""
        self.sample(0, use(device, 0, None))
        busy = sum(one.busy_ns or 0 for one in processes)
        self.sample(until, use(device, until, 0, *processes, used=100, busy=busy))

    def used(self) -> Usage:
        usage = self.snapshot().usage
        assert usage is not None
        for account in usage.devices.values():
            adds_up(account)
        return usage

    def account(self, device: str = A) -> DeviceUsage:
        return self.used().devices[device]

    def containers(self, device: str = A) -> list[tuple[str, ...]]:
        """Return namespace, pod, container and UID of all containers in the account."""
        found = [one.subject for one in self.account(device).containers]
        return [(s.namespace, s.pod, s.container, s.uid) for s in found]

    def only_container(self, device: str = A) -> ContainerUsage:
        [found] = self.account(device).containers
        return found
