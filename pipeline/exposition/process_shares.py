"""What the processes of each holder use of a device (`sharing: copies`).

As in dcgm-exporter with `--kubernetes-virtual-gpus`: utilisation and used memory of a held device
have one series for the device, without a pod, and one for each container that holds it, with what
its own processes use. Each holder has only one series, also if it has several replicas of the
device, so that sums over pods are right.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import ContainerUsage, DeviceUsage, Usage, Value

ContainerName: TypeAlias = tuple[str, str, str, str]
"""Namespace, pod, container and uid of the pod; unknown parts are empty."""

_PPM_PER_PERCENT: Final = 10_000


def _utilization(used: ContainerUsage) -> Value | None:
    ppm = used.recent_busy_ppm
    if ppm is None or ppm % _PPM_PER_PERCENT:
        return None if ppm is None else ppm / _PPM_PER_PERCENT
    return ppm // _PPM_PER_PERCENT  # whole numbers stay whole


BY_PROCESS: Final[Mapping[str, Callable[[ContainerUsage], Value | None]]] = {
    "gpu_utilization_percent": _utilization,
    "memory_used_bytes": lambda used: used.memory_bytes,
}
"""The fields that have a value for each holder: how to read it from the account of a container, in
the unit of the field. None if it is unknown."""


class _Line(NamedTuple):
    line: int
    device: str
    field: str
    containers: tuple[ContainerName, ...]


class ProcessShares:
    """The lines of a page that show what the processes of a holder use."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._usage: Usage | None = None
        self._values: list[tuple[int, Value | None]] = []

    def add(
        self, line: int, device: str, field: str, containers: tuple[ContainerName, ...]
    ) -> None:
        """Add a line.

        Args:
            line: index of the line.
            device: uuid of the device.
            field: name of the field, a key of `BY_PROCESS`.
            containers: the containers whose names look the same on the page; nearly always one.
        """
        self._lines.append(_Line(line, device, field, containers))

    def values(self, usage: Usage | None) -> list[tuple[int, Value | None]]:
        """Return the index and the value of each line; the value is None if it is unknown.

        Args:
            usage: the usage accounts; None if no source samples usage.
        """
        if usage is None:
            return [(one.line, None) for one in self._lines]
        if usage is not self._usage:
            self._usage, self._values = usage, list(self._read(usage))
        return self._values

    def _read(self, usage: Usage) -> Iterator[tuple[int, Value | None]]:
        accounts: dict[str, dict[ContainerName, ContainerUsage]] = {}
        for line, device, field, containers in self._lines:
            if device not in accounts:
                accounts[device] = _by_name(usage.devices.get(device))
            known = [
                BY_PROCESS[field](one)
                for container in containers
                if (one := _account(accounts[device], container)) is not None
            ]
            parts = [value for value in known if value is not None]
            yield line, sum(parts) if len(parts) == len(containers) else None


def _by_name(account: DeviceUsage | None) -> dict[ContainerName, ContainerUsage]:
    return {
        (one.subject.namespace, one.subject.pod, one.subject.container, one.subject.uid): one
        for one in (account.containers if account is not None else ())
        if one.ended is None
    }


def _account(
    accounts: Mapping[ContainerName, ContainerUsage], name: ContainerName
) -> ContainerUsage | None:
    """Return the account of a container; None if another account may be of the same container.

    Processes are known by their pod's uid, holders perhaps only by its name. While no source
    reports both, the processes of a holder may be in an account of their own.
    """
    if any(other != name and _may_be_same(other, name) for other in accounts):
        return None
    return accounts.get(name)


def _may_be_same(one: ContainerName, other: ContainerName) -> bool:
    return all(a == b or not a or not b for a, b in zip(one, other, strict=True))
