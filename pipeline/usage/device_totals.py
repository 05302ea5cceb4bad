"""What was used of one device in all, and the parts of it that its containers and holdings had."""

from collections.abc import Sequence

from pipeline.model import DeviceUsage, Instant
from pipeline.usage.account_ids import Ids
from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.holder_timeline import HolderSpan
from pipeline.usage.holding import HoldingAccount, split_among_holdings
from pipeline.usage.interval_samples import ContainerName, IntervalUsage
from pipeline.usage.interval_split import Busy, Memory, split_energy, split_held_time


class UsageTotals:
    """Adds up intervals. Whatever a container has, its holdings have, and what it doesn't, nobody.

    What comes for a container whose holdings have all been told of is nobody's: those are final.

    Attributes:
        containers: the containers.
        busy_ns: how long the device was busy; None where that was never known.
        busy_unattributed_ns: of it, what no container is known to have done.
        elapsed_ns: all time that was counted.
        unheld_ns: of it, what no container is known to have held, by part.
        unknown_ns: of that, the time for which no source told who holds the device, or a container
            held it that has no account.
        energy_mj: what it used; None where that was never known.
        energy_unattributed_mj: of it, what falls to no container.

    Args:
        ids: makes the ids of containers and holdings.
    """

    def __init__(self, ids: Ids) -> None:
        self.containers = ContainerAccounts(ids)
        self.busy_ns: int | None = None
        self.busy_unattributed_ns = 0
        self.elapsed_ns = 0
        self.unheld_ns = 0
        self.unknown_ns = 0
        self.energy_mj: int | None = None
        self.energy_unattributed_mj = 0

    def count_time(
        self, pieces: Sequence[HolderSpan], time_ns: int, times: dict[HoldingAccount, int]
    ) -> IntervalUsage:
        """Take in an interval, with those who held the device in its pieces."""
        parts, unheld, unknown = split_held_time(pieces)
        interval = IntervalUsage(time_ns, {}, unheld, None, holding_times=times)
        for container, part in parts.items():
            entry = self.containers.get(container)
            its = 0 if entry is None else _add_held_time(entry, part, pieces)
            interval.unheld_ns += part - its
            # A container held it that has no account, or whose holding is final.
            unknown += part - its
            if entry is not None and entry.open_holdings():
                entry.held_ns += its
                interval.held[container] = its
        self.elapsed_ns += time_ns
        self.unheld_ns += interval.unheld_ns
        self.unknown_ns += unknown
        return interval

    def mark_concealed(self, interval: IntervalUsage, containers: frozenset[ContainerName]) -> None:
        """Note of whom MPS conceals what they did."""
        interval.concealed |= containers
        for name in containers:
            entry = self.containers.get(name)
            if entry is not None:
                entry.mark_concealed()

    def count_busy(self, interval: IntervalUsage, found: Busy) -> None:
        """Take in the busy time of an interval, whose time has been taken in."""
        interval.busy, interval.busy_unattributed_ns = {}, found.unattributed
        for container, part in found.containers.items():
            entry = self.containers.get(container)
            if entry is None or not (holdings := entry.open_holdings()):
                interval.busy_unattributed_ns += part
                continue
            entry.busy_ns = (entry.busy_ns or 0) + part
            interval.busy[container] = part
            for holding, own in split_among_holdings(part, holdings, interval.holding_times):
                holding.add_busy(own, interval.holding_times.get(holding, 0))
        if found.no_others:
            for entry in self.containers:
                if entry.name not in interval.busy:
                    if entry.busy_ns is None and _starts_at_zero(entry, interval):
                        entry.busy_ns = 0
                    for holding in entry.open_holdings():
                        if holding in interval.holding_times and not holding.concealed:
                            holding.add_busy(0, interval.holding_times[holding])
        self.busy_ns = (
            (self.busy_ns or 0) + sum(interval.busy.values()) + interval.busy_unattributed_ns
        )
        self.busy_unattributed_ns += interval.busy_unattributed_ns

    def count_energy(self, total: int, idle: int, interval: IntervalUsage) -> None:
        """Take in the energy of an interval, whose time and busy time have been taken in.

        Args:
            total: in millijoules.
            idle: of it, what would have been used anyway.
            interval: what the time brought; more than none.
        """
        parts, nobody = split_energy(total, idle, interval)
        for entry in self.containers:
            if entry.energy_mj is None and _starts_at_zero(entry, interval):
                entry.energy_mj = 0
            for holding in entry.open_holdings():
                first = holding.energy_mj is None and not holding.concealed
                if first and holding in interval.holding_times:
                    holding.energy_mj = 0
        for container, part in parts.items():
            known = self.containers.get(container)
            hidden = container in interval.concealed
            if known is None or hidden or not (holdings := known.open_holdings()):
                nobody += part
                continue
            known.energy_mj = (known.energy_mj or 0) + part
            for holding, own in split_among_holdings(part, holdings, interval.holding_times):
                holding.add_energy(own)
        self.add_unattributed_energy(total, nobody)

    def add_unattributed_energy(self, total: int, unattributed: int) -> None:
        """Take in energy, in millijoules, with the part of it that falls to no container."""
        self.energy_mj = (self.energy_mj or 0) + total
        self.energy_unattributed_mj += unattributed

    def to_device_usage(
        self, device: str, own_id: str, start: Instant, at: Instant, memory: Memory
    ) -> DeviceUsage:
        """Return what it all comes to.

        Args:
            device: uuid.
            own_id: identifies the account.
            start: since when there is an account.
            at: the last look.
            memory: the memory that is used now.
        """
        roster = self.containers
        return DeviceUsage(
            device,
            start,
            at,
            tuple([entry.usage(device, at.mono_ns) for entry in roster]),
            memory.used,
            memory.reserved,
            memory.unattributed,
            self.busy_ns,
            None if self.busy_ns is None else self.busy_unattributed_ns,
            self.elapsed_ns,
            self.unheld_ns,
            self.energy_mj,
            None if self.energy_mj is None else self.energy_unattributed_mj,
            roster.forgotten_busy_ns,
            roster.forgotten_held_ns,
            roster.forgotten_energy_mj,
            self.unknown_ns,
            own_id,
        )


def _starts_at_zero(account: ContainerAccount, interval: IntervalUsage) -> bool:
    """Whether a container's sum begins at 0: it is there, and nothing that it did is unknown."""
    if account.concealed:
        return False
    return (account.ended is None and not account.unseen) or account.name in interval.held


def _add_held_time(account: ContainerAccount, part: int, pieces: Sequence[HolderSpan]) -> int:
    """Give the holdings of a container its held time; return how much of it they have."""
    running = account.running
    if running is not None and not account.ending and running.start.mono_ns <= pieces[0].start_ns:
        running.held_ns += part
        return part
    given = 0
    for piece in pieces:
        holding = account.holding_at(piece.start_ns)
        if holding is not None:
            own = _held_in(piece, account.name)
            holding.held_ns += own
            given += own
    return given


def _held_in(piece: HolderSpan, container: ContainerName) -> int:
    return split_held_time([piece])[0].get(container, 0)
