"""What a look brings, once it is known whose the processes are."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from pipeline.model import PodInfo
from pipeline.usage.holding import HoldingAccount

K = TypeVar("K")

ContainerName: TypeAlias = tuple[str, str, str, str]
"""Namespace, pod, container and uid: a container, whatever its id. Hashes many times as fast as a
`PartialRef`, and sorts as one."""


class ProcessSample(NamedTuple):
    """What one process had of a device since the look before.

    Attributes:
        container: whose it is; None if it is no container's, or nobody
            could say whose.
        owner_known: whether it is known whose it is, be it nobody's.
        pod: what is known of the container's pod.
        is_running: it is there now.
        memory_bytes: device memory that it has now; None where the driver doesn't say.
        busy_ns: how long it kept the device busy; None where the driver doesn't say.
        is_mps_client: it is a client of an MPS server.
    """

    container: ContainerName | None
    owner_known: bool
    pod: PodInfo | None
    is_running: bool
    memory_bytes: int | None
    busy_ns: int | None
    is_mps_client: bool = False

    def owner(self, sole_holder: ContainerName | None) -> ContainerName | None:
        """Return whose it is, by claims where nobody could look.

        Args:
            sole_holder: the one container that held the device; None if none did, or several.
        """
        return self.container if self.owner_known else sole_holder

    @property
    def presence_key(self) -> tuple[bool, int]:
        """What tells which of several processes says best that their container is there."""
        return self.is_running, self.busy_ns or 0

    def scaled_to(self, time_ns: int, whole_ns: int) -> "ProcessSample":
        """Return it with its busy time in a part of the interval; that is no longer than it."""
        if self.busy_ns is None:
            return self
        return self._replace(busy_ns=min(self.busy_ns, whole_ns) * time_ns // whole_ns)


@dataclass(slots=True)
class IntervalUsage:
    """What an interval brought: the whole of it, in parts.

    Attributes:
        time_ns: how long it was.
        held: held time by container.
        unheld_ns: the rest of the time.
        busy: busy time by container; None where it isn't known how long the device was busy.
        busy_unattributed_ns: busy time that no container is known to have had.
        holding_times: how much of the time each holding had.
        concealed: containers of whom MPS conceals what they did: neither busy time nor energy.
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
        """How long the device was busy."""
        return None if self.busy is None else sum(self.busy.values()) + self.busy_unattributed_ns

    def append(self, later: "IntervalUsage") -> None:
        """Let a later interval follow; what is unknown in a part of it is unknown of it all."""
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
        """Let what a container had be nobody's."""
        self.unheld_ns += self.held.pop(container, 0)
        if self.busy is not None:
            self.busy_unattributed_ns += self.busy.pop(container, 0)


def _add(parts: dict[K, int], more: dict[K, int]) -> None:
    for key, part in more.items():
        parts[key] = parts.get(key, 0) + part
