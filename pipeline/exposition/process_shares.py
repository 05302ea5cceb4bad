"""What the processes of each holder use of a device (`sharing: copies`).

As in dcgm-exporter with `--kubernetes-virtual-gpus`: utilisation and used memory of a held device
have one series for the device, without a pod, and one for each container that holds it, with what
its own processes use. Each holder has only one series, also if it has several replicas of the
device. What containers of the pod use that do not hold the device, such as init containers, counts
for the first holder of the pod. So sums over pods are right.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
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


class _Lines(NamedTuple):
    first: int
    device: str
    field: str
    holders: Sequence[tuple[ContainerName, ...]]


class ProcessShares:
    """The lines of a page that show what the processes of a holder use."""

    def __init__(self) -> None:
        self._groups: list[_Lines] = []
        self._usage: Usage | None = None
        self._values: list[tuple[int, Value | None]] = []

    def add(
        self, first: int, device: str, field: str, holders: Sequence[tuple[ContainerName, ...]]
    ) -> None:
        """Add the lines of a device's holders.

        Args:
            first: index of the first line.
            device: uuid of the device.
            field: name of the field, a key of `BY_PROCESS`.
            holders: for each line, the containers whose names look the same on the page; nearly
                always one.
        """
        self._groups.append(_Lines(first, device, field, holders))

    def values(self, usage: Usage | None) -> list[tuple[int, Value | None]]:
        """Return the index and the value of each line; the value is None if it is unknown.

        Args:
            usage: the usage accounts; None if no source samples usage.
        """
        if usage is None:
            return [
                (line, None)
                for group in self._groups
                for line, _ in enumerate(group.holders, group.first)
            ]
        if usage is not self._usage:
            self._usage, self._values = usage, list(self._read(usage))
        return self._values

    def _read(self, usage: Usage) -> Iterator[tuple[int, Value | None]]:
        for first, device, field, holders in self._groups:
            accounts = _by_name(usage.devices.get(device))
            others = _of_no_holder(accounts, {one for several in holders for one in several})
            for line, containers in enumerate(holders, first):
                used = [_account(accounts, one) for one in containers]
                for namespace, pod, _, uid in containers:
                    used += others.pop((namespace, pod, uid), ())
                values = [None if one is None else BY_PROCESS[field](one) for one in used]
                parts = [value for value in values if value is not None]
                yield line, sum(parts) if len(parts) == len(values) else None


def _by_name(account: DeviceUsage | None) -> dict[ContainerName, ContainerUsage]:
    return {
        (one.subject.namespace, one.subject.pod, one.subject.container, one.subject.uid): one
        for one in (account.containers if account is not None else ())
        if one.ended is None
    }


def _of_no_holder(
    accounts: Mapping[ContainerName, ContainerUsage], holders: Set[ContainerName]
) -> dict[tuple[str, str, str], list[ContainerUsage]]:
    """Return the accounts of containers that are no holders, by namespace, name and uid of the pod.

    They use the device without holding it: an init container whose device has passed to the pod's
    main container, or one that all devices are visible to.
    """
    found: defaultdict[tuple[str, str, str], list[ContainerUsage]] = defaultdict(list)
    for name, account in accounts.items():
        if name not in holders:
            namespace, pod, _, uid = name
            found[namespace, pod, uid].append(account)
    return found


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
