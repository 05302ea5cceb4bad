"""Functions that split the usage of an interval among containers. The parts sum to the whole."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from pipeline.usage.apportionment import apportion, sum_known
from pipeline.usage.holder_timeline import HolderSpan
from pipeline.usage.interval_samples import ContainerName, IntervalUsage, ProcessSample

Parts: TypeAlias = dict[ContainerName, int]


class Memory(NamedTuple):
    """Memory of a device.

    `used` is the sum of `reserved`, `unattributed` and the memory of the known containers.

    Attributes:
        used: memory that is not free, in bytes; None if it is unknown. Then `reserved` and
            `unattributed` are None, too.
        reserved: memory that the driver keeps for itself.
        unattributed: memory that belongs to no known container.
        containers: memory of each container with processes, in bytes; None if the driver does not
            report it.
        no_others: whether it is known that other containers have no memory on the device.
    """

    used: int | None
    reserved: int | None
    unattributed: int | None
    containers: dict[ContainerName, int | None]
    no_others: bool

    def without(self, gone: Collection[ContainerName]) -> "Memory":
        """Return this memory, with that of some containers moved to `unattributed`."""
        if not gone:
            return self
        freed = sum(self.containers[one] or 0 for one in gone)
        left = {name: has for name, has in self.containers.items() if name not in gone}
        unattributed = None if self.unattributed is None else self.unattributed + freed
        return self._replace(unattributed=unattributed, containers=left)

    def rename(self, before: ContainerName, name: ContainerName) -> None:
        """Move the memory of a container to another name, and add what that name has."""
        if before in self.containers:
            self.containers[name] = sum_known(
                self.containers.pop(before), self.containers.get(name)
            )


class Busy(NamedTuple):
    """Busy time of a device.

    Attributes:
        containers: busy time by container, in nanoseconds.
        unattributed: busy time that belongs to no known container.
        no_others: whether it is known that other containers have no busy time.
    """

    containers: Parts
    unattributed: int
    no_others: bool


def split_held_time(spans: Iterable[HolderSpan]) -> tuple[Parts, int, int]:
    """Split the time of an interval among the holders.

    Returns:
        Nanoseconds by container; the time that no container held; and the part of that time in
        which the holders were not known.
    """
    parts: Parts = {}
    unheld = unknown = 0
    for span in spans:
        change = span.change
        if change is None:
            unheld += span.time_ns
            unknown += span.time_ns
            continue
        *of_holders, of_unheld = apportion(span.time_ns, change.weights)
        for name, part in zip(change.held, of_holders, strict=True):
            parts[name] = parts.get(name, 0) + part
        unheld += of_unheld
        unknown += 0 if change.holders_known else of_unheld
    return parts, unheld, unknown


def split_memory(
    used: int | None,
    reserved: int | None,
    processes: Sequence[ProcessSample],
    sole_holder: ContainerName | None,
    *,
    listed: bool = True,
) -> Memory:
    """Split the memory that is in use now.

    Args:
        used: all memory that is not free, in bytes; None if unknown.
        reserved: the part that the driver keeps for itself; None if the driver does not report it.
        processes: the processes of the device.
        sole_holder: the only container that holds the device now; None if there are none or
            several.
        listed: whether these are all processes. If they cannot be listed, all memory except the
            driver's is attributed to `sole_holder`.
    """
    if used is not None:
        used = max(used, 0)
        reserved = min(max(reserved or 0, 0), used)
    if not listed and sole_holder is not None and not any(one.is_running for one in processes):
        if used is None or reserved is None:
            return Memory(None, None, None, {sole_holder: None}, no_others=False)
        return Memory(used, reserved, 0, {sole_holder: used - reserved}, no_others=False)
    known: Parts = {}
    hidden: set[ContainerName] = set()
    others, complete = 0, listed
    for process in processes:
        if not process.is_running:
            continue
        container, has = process.owner(sole_holder), process.memory_bytes
        if container is None:
            complete = complete and process.owner_known
            others += max(has or 0, 0)
        elif has is None:
            hidden.add(container)
        else:
            known[container] = known.get(container, 0) + max(has, 0)
    for container in hidden:
        others += known.pop(container, 0)
    unknown: dict[ContainerName, int | None] = dict.fromkeys(hidden)
    if used is None or reserved is None:
        return Memory(None, None, None, {**known, **unknown}, complete)
    left = used - reserved
    # Both are read at different times: memory that was freed in between is in one of them.
    known = _fitted(known, others, left)
    return Memory(used, reserved, left - sum(known.values()), {**known, **unknown}, complete)


def split_busy(
    total: int,
    processes: Sequence[ProcessSample],
    sole_holder: ContainerName | None,
    before: Collection[ContainerName | None] = (),
    *,
    listed: bool = True,
) -> Busy:
    """Split busy time among containers.

    Args:
        total: busy time of the device in nanoseconds, at most the length of the interval. If the
            processes have more, their busy times are scaled down to it.
        processes: the processes of the interval. If the driver reports busy time for none of
            them, all of it is attributed to the only container of these processes and of `before`,
            or to `sole_holder` if there are no such processes; otherwise it is unattributed.
        sole_holder: the only container that held the device in the interval; None if there were
            none or several.
        before: containers of the processes at the start of the interval. These processes may have
            ended since, and their usage does not belong to later processes.
        listed: whether the processes could be listed. If they could not, and the driver reports no
            busy time by process, no container is known to have none.
    """
    total = max(total, 0)
    parts: Parts = {}
    others, reported, complete = 0, False, True
    for process in processes:
        if process.busy_ns is None:
            continue
        reported = True
        container = process.owner(sole_holder)
        if container is not None:
            parts[container] = parts.get(container, 0) + max(process.busy_ns, 0)
            continue
        others += max(process.busy_ns, 0)
        if process.busy_ns > 0 and not process.owner_known:
            complete = False
    if not reported:
        owners = {process.owner(sole_holder) for process in processes} | set(before)
        if not owners:
            owners = {sole_holder}
        if len(owners) == 1 and (only := next(iter(owners))) is not None:
            return Busy({only: total}, 0, no_others=True)
        return Busy({}, total, no_others=listed and not total)
    parts = _fitted(parts, others, total)
    return Busy(parts, total - sum(parts.values()), complete)


def _fitted(parts: Parts, others: int, total: int) -> Parts:
    """Return the parts, scaled down if they and other amounts sum to more than the total."""
    if sum(parts.values()) + others <= total:
        return parts
    order = sorted(parts)
    fitted = apportion(total, [*(parts[one] for one in order), others])
    return dict(zip(order, fitted[:-1], strict=True))


def split_busy_with_mps(
    total: int,
    processes: Sequence[ProcessSample],
    hidden: Collection[ContainerName],
    others: Collection[ContainerName | None],
) -> Busy:
    """Split busy time while an MPS server uses the device. Concealed usage is unattributed.

    Args:
        total: busy time of the device; see `split_busy`.
        processes: the processes of the interval.
        hidden: the containers whose usage is concealed; see `concealed_by_mps`.
        others: see `concealed_by_mps`.
    """
    only = _only_client(processes, others)
    if only is not None:
        return Busy({only: total}, 0, no_others=False)
    own = [one for one in processes if one.busy_ns is not None and one.container not in hidden]
    found = split_busy(total, own, None) if own else Busy({}, total, no_others=False)
    return found._replace(no_others=False)


def concealed_by_mps(
    processes: Sequence[ProcessSample], others: Collection[ContainerName | None]
) -> frozenset[ContainerName]:
    """Return the containers whose usage an MPS server conceals.

    The driver does not list all MPS clients, so every container may have had clients. A
    container is not concealed if the busy time of each of its own processes is known. If there
    is only one container and it has clients, all usage is its own and nothing is concealed.

    Args:
        processes: the processes of the interval.
        others: containers that may have had other processes: the holders, and the containers of
            the processes at the start of the interval.
    """
    if _only_client(processes, others) is not None:
        return frozenset()
    hidden = {one.container for one in processes if one.busy_ns is None}
    known = {one.container for one in processes} - hidden
    return frozenset([one for one in hidden | (set(others) - known) if one is not None])


def _only_client(
    processes: Sequence[ProcessSample], others: Collection[ContainerName | None]
) -> ContainerName | None:
    """Return the only container, if it has MPS clients; else None."""
    owners = {one.container for one in processes} | set(others)
    clients = any(one.is_mps_client for one in processes)
    return next(iter(owners)) if clients and len(owners) == 1 else None


def split_energy(total: int, idle: int, interval: IntervalUsage) -> tuple[Parts, int]:
    """Split energy by a model: idle energy by held time, the rest by busy time.

    If the busy time is 0 or unknown, all energy is split by held time.

    Args:
        total: energy in millijoules.
        idle: the part that an idle device would have used.
        interval: the usage of the time in which the energy was used.

    Returns:
        Millijoules by container, and the unattributed part.
    """
    idle = total if not interval.busy_ns else idle
    parts: Parts = {}
    unattributed = 0
    for amount, by, by_unattributed in (
        (idle, interval.held, interval.unheld_ns),
        (total - idle, interval.busy or {}, interval.busy_unattributed_ns),
    ):
        if not amount:
            continue
        order = sorted(by) if len(by) > 1 else list(by)
        weights = [*(by[one] for one in order), by_unattributed]
        *of_containers, rest = apportion(amount, weights)
        for container, part in zip(order, of_containers, strict=True):
            parts[container] = parts.get(container, 0) + part
        unattributed += rest
    return parts, unattributed
