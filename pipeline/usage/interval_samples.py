"""The usage of one interval between two samples, by container."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from pipeline.model import PodInfo
from pipeline.usage.holding import HoldingAccount

K = TypeVar("K")

ContainerName: TypeAlias = tuple[str, str, str, str]
"""Namespace, pod name, container name and pod uid. It hashes much faster than a `PartialRef` and
sorts in the same order."""


class ProcessSample(NamedTuple):
    """The usage of a device by one process since the previous sample.

    Attributes:
        container: the container of the process; None if it is in no container or unknown.
        owner_known: whether it is known in which container the process is, or that it is in none.
        pod: what is known of the container's pod.
        is_running: whether the process existed when the sample was taken.
        memory_bytes: its device memory now; None if the driver does not report it.
        busy_ns: how long it kept the device busy; None if the driver does not report it.
        is_mps_client: whether it is a client of an MPS server.
    """

    container: ContainerName | None
    owner_known: bool
    pod: PodInfo | None
    is_running: bool
    memory_bytes: int | None
    busy_ns: int | None
    is_mps_client: bool = False

    def owner(self, sole_holder: ContainerName | None) -> ContainerName | None:
        """Return the container of the process; if it is unknown, the only holder of the device.

        Args:
            sole_holder: the only container that held the device; None if not exactly one did.
        """
        return self.container if self.owner_known else sole_holder

    @property
    def presence_key(self) -> tuple[bool, int]:
        """Sort key. The process with the largest key shows best that its container is present."""
        return self.is_running, self.busy_ns or 0

    def scaled_to(self, time_ns: int, whole_ns: int) -> "ProcessSample":
        """Return the process with the busy time of `whole_ns` reduced to that of `time_ns`."""
        if self.busy_ns is None:
            return self
        return self._replace(busy_ns=min(self.busy_ns, whole_ns) * time_ns // whole_ns)


@dataclass(slots=True)
class IntervalUsage:
    """The usage of a device in an interval, divided among containers.

    Attributes:
        time_ns: the length of the interval.
        held: held time by container.
        unheld_ns: time that no container held, by share.
        busy: busy time by container; None if the busy time of the device is unknown.
        busy_unattributed_ns: busy time that belongs to no known container.
        holding_times: the counted time of each holding in the interval.
        concealed: containers whose busy time and energy MPS conceals.
    """

    time_ns: int = 0
    held: dict[ContainerName, int] = field(default_factory=dict)
    unheld_ns: int = 0
    busy: dict[ContainerName, int] | None = field(default_factory=dict)
    busy_unattributed_ns: int = 0
    holding_times: dict[HoldingAccount, int] = field(default_factory=dict)
    concealed: frozenset[ContainerName] = frozenset()

    @property
    def busy_ns(self) -> int | None:
        """Busy time of the device; None if unknown."""
        return None if self.busy is None else sum(self.busy.values()) + self.busy_unattributed_ns

    def append(self, later: "IntervalUsage") -> None:
        """Append a later interval. If either busy time is unknown, that of both is unknown."""
        self.time_ns += later.time_ns
        self.unheld_ns += later.unheld_ns
        _add(self.held, later.held)
        _add(self.holding_times, later.holding_times)
        self.concealed |= later.concealed
        if self.busy is None or later.busy is None:
            self.busy, self.busy_unattributed_ns = None, 0
        else:
            _add(self.busy, later.busy)
            self.busy_unattributed_ns += later.busy_unattributed_ns

    def move_to_unattributed(self, container: ContainerName) -> None:
        """Move the amounts of a container to the unattributed amounts."""
        self.unheld_ns += self.held.pop(container, 0)
        if self.busy is not None:
            self.busy_unattributed_ns += self.busy.pop(container, 0)


def _add(parts: dict[K, int], more: dict[K, int]) -> None:
    for key, part in more.items():
        parts[key] = parts.get(key, 0) + part
