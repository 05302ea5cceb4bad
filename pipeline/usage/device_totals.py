"""What was used of one device in all, and the parts of it that its containers and holdings had."""

from collections.abc import Sequence

from pipeline.model import DeviceUsage, Instant
from pipeline.usage.account_ids import Ids
from pipeline.usage.container_accounts import Entry, Roster
from pipeline.usage.holder_timeline import Piece
from pipeline.usage.holding import HoldingAccount, split
from pipeline.usage.interval_samples import Interval, Name
from pipeline.usage.interval_split import Busy, Memory, energy, held_time


class Sums:
    """Adds up intervals. Whatever a container has, its holdings have, and what it doesn't, nobody.

    What comes for a container whose holdings have all been told of is nobody's: those are final.

    Attributes:
        roster: the containers.
        busy_ns: how long the device was busy; None where that was never known.
        busy_other_ns: of it, what no container is known to have done.
        elapsed_ns: all time that was counted.
        unheld_ns: of it, what no container is known to have held, by part.
        unknown_ns: of that, the time for which no source told who holds the device, or a container
            held it that has no account.
        energy_mj: what it used; None where that was never known.
        energy_other_mj: of it, what falls to no container.

    Args:
        ids: makes the ids of containers and holdings.
    """

    def __init__(self, ids: Ids) -> None:
        self.roster = Roster(ids)
        self.busy_ns: int | None = None
        self.busy_other_ns = 0
        self.elapsed_ns = 0
        self.unheld_ns = 0
        self.unknown_ns = 0
        self.energy_mj: int | None = None
        self.energy_other_mj = 0

    def count_time(
        self, pieces: Sequence[Piece], time_ns: int, times: dict[HoldingAccount, int]
    ) -> Interval:
        """Take in an interval, with those who held the device in its pieces."""
        parts, unheld, unknown = held_time(pieces)
        interval = Interval(time_ns, {}, unheld, None, times=times)
        for container, part in parts.items():
            entry = self.roster.get(container)
            its = 0 if entry is None else _give_time(entry, part, pieces)
            interval.unheld_ns += part - its
            # A container held it that has no account, or whose holding is final.
            unknown += part - its
            if entry is not None and entry.open():
                entry.held_ns += its
                interval.held[container] = its
        self.elapsed_ns += time_ns
        self.unheld_ns += interval.unheld_ns
        self.unknown_ns += unknown
        return interval

    def conceal(self, interval: Interval, containers: frozenset[Name]) -> None:
        """Note of whom MPS conceals what they did."""
        interval.concealed |= containers
        for name in containers:
            entry = self.roster.get(name)
            if entry is not None:
                entry.conceal()

    def count_busy(self, interval: Interval, found: Busy) -> None:
        """Take in the busy time of an interval, whose time has been taken in."""
        interval.busy, interval.busy_other_ns = {}, found.unattributed
        for container, part in found.containers.items():
            entry = self.roster.get(container)
            if entry is None or not (holdings := entry.open()):
                interval.busy_other_ns += part
                continue
            entry.busy_ns = (entry.busy_ns or 0) + part
            interval.busy[container] = part
            for holding, own in split(part, holdings, interval.times):
                holding.add_busy(own, interval.times.get(holding, 0))
        if found.whole:
            for entry in self.roster:
                if entry.name not in interval.busy:
                    if entry.busy_ns is None and _begins(entry, interval):
                        entry.busy_ns = 0
                    for holding in entry.open():
                        if holding in interval.times and not holding.concealed:
                            holding.add_busy(0, interval.times[holding])
        self.busy_ns = (self.busy_ns or 0) + sum(interval.busy.values()) + interval.busy_other_ns
        self.busy_other_ns += interval.busy_other_ns

    def count_energy(self, total: int, idle: int, interval: Interval) -> None:
        """Take in the energy of an interval, whose time and busy time have been taken in.

        Args:
            total: in millijoules.
            idle: of it, what would have been used anyway.
            interval: what the time brought; more than none.
        """
        parts, nobody = energy(total, idle, interval)
        for entry in self.roster:
            if entry.energy_mj is None and _begins(entry, interval):
                entry.energy_mj = 0
            for holding in entry.open():
                first = holding.energy_mj is None and not holding.concealed
                if first and holding in interval.times:
                    holding.energy_mj = 0
        for container, part in parts.items():
            known = self.roster.get(container)
            hidden = container in interval.concealed
            if known is None or hidden or not (holdings := known.open()):
                nobody += part
                continue
            known.energy_mj = (known.energy_mj or 0) + part
            for holding, own in split(part, holdings, interval.times):
                holding.add_energy(own)
        self.waste(total, nobody)

    def waste(self, total: int, nobody: int) -> None:
        """Take in energy, in millijoules, with the part of it that falls to no container."""
        self.energy_mj = (self.energy_mj or 0) + total
        self.energy_other_mj += nobody

    def shown(
        self, device: str, own_id: str, start: Instant, at: Instant, has: Memory
    ) -> DeviceUsage:
        """Return what it all comes to.

        Args:
            device: uuid.
            own_id: identifies the account.
            start: since when there is an account.
            at: the last look.
            has: the memory that is used now.
        """
        roster = self.roster
        return DeviceUsage(
            device,
            start,
            at,
            tuple([entry.usage(device, at.mono_ns) for entry in roster]),
            has.used,
            has.reserved,
            has.unattributed,
            self.busy_ns,
            None if self.busy_ns is None else self.busy_other_ns,
            self.elapsed_ns,
            self.unheld_ns,
            self.energy_mj,
            None if self.energy_mj is None else self.energy_other_mj,
            roster.forgotten_busy_ns,
            roster.forgotten_held_ns,
            roster.forgotten_energy_mj,
            self.unknown_ns,
            own_id,
        )


def _begins(entry: Entry, interval: Interval) -> bool:
    """Whether a container's sum begins at 0: it is there, and nothing that it did is unknown."""
    if entry.concealed:
        return False
    return (entry.ended is None and not entry.awaited) or entry.name in interval.held


def _give_time(entry: Entry, part: int, pieces: Sequence[Piece]) -> int:
    """Give the holdings of a container its held time; return how much of it they have."""
    running = entry.running
    if running is not None and not entry.closing and running.start.mono_ns <= pieces[0].start_ns:
        running.held_ns += part
        return part
    given = 0
    for piece in pieces:
        holding = entry.covering(piece.start_ns)
        if holding is not None:
            own = _held_in(piece, entry.name)
            holding.held_ns += own
            given += own
    return given


def _held_in(piece: Piece, container: Name) -> int:
    return held_time([piece])[0].get(container, 0)
