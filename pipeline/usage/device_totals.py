"""The usage totals of one device, and how they are divided among containers and holdings."""

from collections.abc import Collection, Sequence

from pipeline.usage.container_account import ContainerAccount
from pipeline.usage.container_accounts import ContainerAccounts
from pipeline.usage.contest import Contest, contests, sum_contests
from pipeline.usage.holder_timeline import HolderSpan
from pipeline.usage.holding import HoldingAccount, split_among_holdings
from pipeline.usage.interval_samples import ContainerName, IntervalUsage
from pipeline.usage.interval_split import Busy, split_energy, split_held_time


class UsageTotals:
    """Adds up intervals. A total is the sum over all containers and the unattributed amount.

    The amount of a container is divided among its holdings. If all holdings of a container are
    final, amounts that arrive later are unattributed.

    Attributes:
        containers: the container accounts.
        busy_ns: busy time of the device; None if it was never known.
        busy_unattributed_ns: the part of `busy_ns` that belongs to no known container.
        elapsed_ns: all counted time.
        unheld_ns: the part of `elapsed_ns` that no known container held, by share.
        unknown_ns: the part of `unheld_ns` in which the holder was unknown, had no account, or had
            only final holdings.
        energy_mj: energy of the device in millijoules; None if it was never known.
        energy_unattributed_mj: the part of `energy_mj` that belongs to no known container.

    Args:
        containers: the container accounts.
    """

    def __init__(self, containers: ContainerAccounts) -> None:
        self.containers = containers
        self.busy_ns: int | None = None
        self.busy_unattributed_ns = 0
        self.elapsed_ns = 0
        self.unheld_ns = 0
        self.unknown_ns = 0
        self.energy_mj: int | None = None
        self.energy_unattributed_mj = 0

    def count_time(
        self, spans: Sequence[HolderSpan], time_ns: int, times: dict[HoldingAccount, int]
    ) -> IntervalUsage:
        """Add the time of an interval; return the interval's usage, as yet without busy time.

        Args:
            spans: the interval, divided where the holders changed.
            time_ns: the length of the interval.
            times: the counted time of each holding in the interval.
        """
        parts, unheld, unknown = split_held_time(spans)
        interval = IntervalUsage(time_ns, {}, unheld, None, holding_times=times)
        for container, part in parts.items():
            entry = self.containers.get(container)
            received = 0 if entry is None else _add_held_time(entry, part, spans)
            interval.unheld_ns += part - received
            # The holder has no account, or all its holdings are final.
            unknown += part - received
            if entry is not None and entry.open_holdings():
                entry.held_ns += received
                interval.held[container] = received
        self.elapsed_ns += time_ns
        self.unheld_ns += interval.unheld_ns
        self.unknown_ns += unknown
        return interval

    def mark_concealed(self, interval: IntervalUsage, containers: frozenset[ContainerName]) -> None:
        """Record the containers whose usage MPS conceals."""
        interval.concealed |= containers
        for name in containers:
            entry = self.containers.get(name)
            if entry is not None:
                entry.mark_concealed()

    def count_busy(
        self, interval: IntervalUsage, found: Busy, users: Collection[ContainerName | None] = ()
    ) -> None:
        """Add the busy time of an interval to the totals and to the interval, after its time.

        Args:
            interval: the interval.
            found: its busy time.
            users: the users of the device in the interval, also those without busy time; None
                stands for processes in no container.
        """
        interval.busy, interval.busy_unattributed_ns = {}, found.unattributed
        for container, part in found.containers.items():
            entry = self.containers.get(container)
            if entry is None or not (holdings := entry.open_holdings()):
                interval.busy_unattributed_ns += part
                continue
            entry.busy_ns = (entry.busy_ns or 0) + part
            interval.busy[container] = part
            for holding, own_part in split_among_holdings(part, holdings, interval.holding_times):
                holding.add_busy(own_part, interval.holding_times.get(holding, 0))
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
        self._count_contests(interval, found, users)

    def _count_contests(
        self, interval: IntervalUsage, found: Busy, users: Collection[ContainerName | None]
    ) -> None:
        uncertain = contests(found.containers, found.unattributed, users, interval.time_ns)
        for container, contest in uncertain.items():
            entry = self.containers.get(container)
            if entry is None or not (holdings := entry.open_holdings()):
                continue
            if container not in found.containers and not found.no_others:
                continue  # its busy time in this interval is unknown
            entry.contest = sum_contests(entry.contest, contest)
            if len(holdings) == 1:
                holdings[0].contest = sum_contests(holdings[0].contest, contest)
                continue
            contested, switching = (
                split_among_holdings(amount, holdings, interval.holding_times) for amount in contest
            )
            for (holding, part), (_, other_part) in zip(contested, switching, strict=True):
                holding.contest = sum_contests(holding.contest, Contest(part, other_part))

    def count_energy(self, total: int, idle: int, interval: IntervalUsage) -> None:
        """Add the energy of an interval, after its time and its busy time.

        Args:
            total: energy in millijoules.
            idle: the part that an idle device would have used.
            interval: the usage of the interval, which is not empty.
        """
        parts, unattributed = split_energy(total, idle, interval)
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
                unattributed += part
                continue
            known.energy_mj = (known.energy_mj or 0) + part
            for holding, own_part in split_among_holdings(part, holdings, interval.holding_times):
                holding.energy_mj = (holding.energy_mj or 0) + own_part
        self.add_unattributed_energy(total, unattributed)

    def add_unattributed_energy(self, total: int, unattributed: int) -> None:
        """Add energy, in millijoules, and the part of it that belongs to no container."""
        self.energy_mj = (self.energy_mj or 0) + total
        self.energy_unattributed_mj += unattributed


def _starts_at_zero(account: ContainerAccount, interval: IntervalUsage) -> bool:
    """Whether an unknown amount of a container is really 0: it is present and not concealed."""
    if account.concealed:
        return False
    return (account.ended is None and not account.unseen) or account.name in interval.held


def _add_held_time(account: ContainerAccount, part: int, spans: Sequence[HolderSpan]) -> int:
    """Add held time to a container's holdings; return how much of it they received."""
    running = account.running
    if running is not None and not account.ending and running.start.mono_ns <= spans[0].start_ns:
        running.held_ns += part
        return part
    added = 0
    for span in spans:
        holding = account.holding_at(span.start_ns)
        if holding is not None:
            own_part = split_held_time([span])[0].get(account.name, 0)
            holding.held_ns += own_part
            added += own_part
    return added
