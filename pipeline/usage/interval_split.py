"""How what an interval brought is split among containers. Each function keeps the whole."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from pipeline.usage.apportionment import apportion, sum_known
from pipeline.usage.holder_timeline import HolderSpan
from pipeline.usage.interval_samples import ContainerName, IntervalUsage, ProcessSample

Parts: TypeAlias = dict[ContainerName, int]


class Memory(NamedTuple):
    """Memory of a device: `used` is `reserved`, `unattributed` and all that is known of containers.

    Attributes:
        used: in bytes; None where it isn't known, then the other two are as well.
        reserved: what the driver keeps for itself.
        unattributed: what no container is known to have.
        containers: by container with processes, in bytes; None where the driver doesn't say.
        no_others: whether no other container has any.
    """

    used: int | None
    reserved: int | None
    unattributed: int | None
    containers: dict[ContainerName, int | None]
    no_others: bool

    def without(self, gone: Collection[ContainerName]) -> "Memory":
        """Return it with what some containers had as nobody's."""
        if not gone:
            return self
        freed = sum(self.containers[one] or 0 for one in gone)
        left = {name: has for name, has in self.containers.items() if name not in gone}
        unattributed = None if self.unattributed is None else self.unattributed + freed
        return self._replace(unattributed=unattributed, containers=left)

    def rename(self, before: ContainerName, name: ContainerName) -> None:
        """Let what one container has be that of another name, beside what stands under that."""
        if before in self.containers:
            self.containers[name] = sum_known(
                self.containers.pop(before), self.containers.get(name)
            )


class Busy(NamedTuple):
    """Busy time of a device.

    Attributes:
        containers: by container, in nanoseconds.
        unattributed: what no container is known to have done.
        no_others: whether no container has done any of that.
    """

    containers: Parts
    unattributed: int
    no_others: bool


def split_held_time(pieces: Iterable[HolderSpan]) -> tuple[Parts, int, int]:
    """Split an interval among those who held the device.

    Returns:
        Nanoseconds by container; what none of them held; and of that the time for which no source
        told who holds the device.
    """
    parts: Parts = {}
    unheld = unknown = 0
    for piece in pieces:
        cut = piece.change
        if cut is None:
            unheld += piece.time_ns
            unknown += piece.time_ns
            continue
        *of_holders, of_nobody = apportion(piece.time_ns, cut.weights)
        for held, part in zip(cut.held, of_holders, strict=True):
            parts[held.container] = parts.get(held.container, 0) + part
        unheld += of_nobody
        unknown += 0 if cut.holders_known else of_nobody
    return parts, unheld, unknown


def holders(pieces: Iterable[HolderSpan]) -> set[ContainerName]:
    """Return the containers that held the device in any part of an interval."""
    return {name for piece in pieces if piece.change for name in piece.change.containers}


def only_holder(pieces: Iterable[HolderSpan]) -> ContainerName | None:
    """Return the one container that held the device in whatever part of an interval."""
    found = holders(pieces)
    return next(iter(found)) if len(found) == 1 else None


def split_memory(
    used: int | None,
    reserved: int | None,
    processes: Sequence[ProcessSample],
    sole_holder: ContainerName | None,
    *,
    listed: bool = True,
) -> Memory:
    """Split the memory that is used now.

    Args:
        used: all that is not free, in bytes; None where nobody says.
        reserved: of it, what the driver keeps for itself; None where it doesn't tell that apart.
        processes: those of the device.
        sole_holder: the one container that holds the device now, if there is exactly one.
        listed: whether those are all. Where none can be listed, all that isn't the driver's is that
            of the one container that holds the device.
    """
    if not listed and sole_holder is not None and not any(one.is_running for one in processes):
        if used is None:
            return Memory(None, None, None, {sole_holder: None}, no_others=False)
        used = max(used, 0)
        reserved = min(max(reserved or 0, 0), used)
        return Memory(used, reserved, 0, {sole_holder: used - reserved}, no_others=False)
    known: Parts = {}
    hidden: set[ContainerName] = set()
    others, whole = 0, listed
    for process in processes:
        if not process.is_running:
            continue
        container, has = process.owner(sole_holder), process.memory_bytes
        if container is None:
            whole = whole and process.owner_known
            others += max(has or 0, 0)
        elif has is None:
            hidden.add(container)
        else:
            known[container] = known.get(container, 0) + max(has, 0)
    for container in hidden:
        others += known.pop(container, 0)
    unknown: dict[ContainerName, int | None] = dict.fromkeys(hidden)
    if used is None:
        return Memory(None, None, None, {**known, **unknown}, whole)
    used = max(used, 0)
    reserved = min(max(reserved or 0, 0), used)
    left = used - reserved
    of_containers = sum(known.values())
    if of_containers + others > left:
        # Read a moment apart: what has been given back since stands in one of the two.
        order = sorted(known)
        fitted = apportion(left, [*(known[one] for one in order), others])
        known = dict(zip(order, fitted[:-1], strict=True))
        of_containers = left - fitted[-1]
    return Memory(used, reserved, left - of_containers, {**known, **unknown}, whole)


def split_busy(
    total: int,
    processes: Sequence[ProcessSample],
    sole_holder: ContainerName | None,
    before: Collection[ContainerName | None] = (),
    *,
    listed: bool = True,
) -> Busy:
    """Split busy time.

    Args:
        total: how long the device was busy, in nanoseconds: no longer than there was time. Where
            processes come to more, they are scaled down to it, those of no container too.
        processes: those of the interval. Where the driver tells busy time of none of them, it is a
            container's if all of them are, else nobody's.
        sole_holder: the one container that held the device in the interval, if there is exactly
            one.
        before: whose the processes were that were there when the interval began; they may have
            ended since, and what they did is not for those who came after them.
        listed: whether the processes could be listed: else nobody is said to have done nothing.
    """
    total = max(total, 0)
    parts: Parts = {}
    others, told, whole = 0, False, True
    for process in processes:
        if process.busy_ns is None:
            continue
        told = True
        container = process.owner(sole_holder)
        if container is not None:
            parts[container] = parts.get(container, 0) + max(process.busy_ns, 0)
            continue
        others += max(process.busy_ns, 0)
        if process.busy_ns > 0 and not process.owner_known:
            whole = False
    if not told:
        whose = {process.owner(sole_holder) for process in processes} | set(before)
        if not whose:
            whose = {sole_holder}
        if len(whose) == 1 and (only := next(iter(whose))) is not None:
            return Busy({only: total}, 0, no_others=True)
        return Busy({}, total, no_others=listed and not total)
    if sum(parts.values()) + others > total:
        order = sorted(parts)
        fitted = apportion(total, [*(parts[one] for one in order), others])
        parts = dict(zip(order, fitted[:-1], strict=True))
    return Busy(parts, total - sum(parts.values()), whole)


def split_busy_with_mps(
    total: int,
    processes: Sequence[ProcessSample],
    hidden: Collection[ContainerName],
    others: Collection[ContainerName | None],
) -> Busy:
    """Split busy time where an MPS server works on the device: most of it is nobody's.

    Args:
        total: as of `split_busy`.
        processes: those of the interval.
        hidden: the containers of whom nothing is known: see `concealed_by_mps`.
        others: as of `concealed_by_mps`.
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
    """Return the containers of whom an MPS server conceals what they did.

    Its clients come and go unseen. So those are all that may have any, except those whose own
    processes have all a busy time that is known. If there is but one container, and it has clients,
    nothing is concealed: it did all.

    Args:
        processes: those of the interval.
        others: who else may have had processes in it: holders, and whose were there at its
            beginning.
    """
    if _only_client(processes, others) is not None:
        return frozenset()
    hidden = {one.container for one in processes if one.busy_ns is None}
    known = {one.container for one in processes} - hidden
    return frozenset([one for one in hidden | (set(others) - known) if one is not None])


def _only_client(
    processes: Sequence[ProcessSample], others: Collection[ContainerName | None]
) -> ContainerName | None:
    """Return the one container that there is, if it has clients of MPS."""
    whose = {one.container for one in processes} | set(others)
    clients = any(one.is_mps_client for one in processes)
    return next(iter(whose)) if clients and len(whose) == 1 else None


def split_energy(total: int, idle: int, interval: IntervalUsage) -> tuple[Parts, int]:
    """Split energy, by a model: what is drawn when idle by held time, the rest by busy time.

    Where nothing was busy, or that isn't known, all of it is split by held time.

    Args:
        total: in millijoules.
        idle: of it, what the device would have drawn anyway.
        interval: what the time brought in which it was used.

    Returns:
        Millijoules by container, and what falls to none.
    """
    idle = total if not interval.busy_ns else idle
    parts: Parts = {}
    nobody = 0
    for amount, by, by_nobody in (
        (idle, interval.held, interval.unheld_ns),
        (total - idle, interval.busy or {}, interval.busy_unattributed_ns),
    ):
        if not amount:
            continue
        order = sorted(by) if len(by) > 1 else list(by)
        weights = [*(by[one] for one in order), by_nobody]
        *of_containers, rest = apportion(amount, weights)
        for container, part in zip(order, of_containers, strict=True):
            parts[container] = parts.get(container, 0) + part
        nobody += rest
    return parts, nobody
