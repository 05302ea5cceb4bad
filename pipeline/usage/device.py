"""The account of one device."""

from collections.abc import Collection, Sequence
from typing import Final

from pipeline.model import NS, DeviceUsage, DeviceUse, Instant, PodInfo
from pipeline.usage.looks import Interval, Name, Process
from pipeline.usage.meter import Meter
from pipeline.usage.roster import KEPT_NS, Roster
from pipeline.usage.split import Memory, busy, energy, held_time, memory, sole
from pipeline.usage.timeline import Held, Piece, Timeline

NEVER: Final = 1 << 63

_BEFORE_NS: Final = 60 * NS
"""How long before the present a first look may lie, at most."""

_UNKNOWN: Final = Memory(None, None, None, {}, whole=False)


class DeviceAccount:
    """Adds up what looks at one device bring. It begins with the first of them.

    Attributes:
        device: its uuid.
        timeline: who held it when.
        meter: its energy counter, and what it draws when idle; of a MIG instance not used.
        pending: of a MIG instance, what came since its GPU's energy was last split.
        at: when it was last looked at; None before the first look.

    Args:
        device: its uuid.
        timeline: who held it so far.
    """

    def __init__(self, device: str, timeline: Timeline | None = None) -> None:
        self.device = device
        self.timeline = timeline or Timeline()
        self.meter = Meter()
        self.pending = Interval()
        self.at: Instant | None = None
        self._start: Instant | None = None
        self._roster = Roster()
        self._memory = _UNKNOWN
        self._memory_end_ns = NEVER
        self._users: frozenset[Name | None] = frozenset()
        self._busy_ns: int | None = None
        self._busy_other_ns = 0
        self._elapsed_ns = 0
        self._unheld_ns = 0
        self._energy_mj: int | None = None
        self._energy_other_mj = 0
        self._usage: DeviceUsage | None = None

    def hold(self, held: tuple[Held, ...], at: Instant) -> None:
        """Note who holds the device from a moment on."""
        self.timeline.put(held, at)
        if self.at is None:
            self.timeline.forget(at.mono_ns - _BEFORE_NS)
            return
        for one in held:
            self._enter(one.container, one.pod, at)
        self._settle(at)
        self._usage = None

    def since(self, use: DeviceUse) -> Instant | None:
        """Return from when on a look counts; None where it tells of no time that can be counted."""
        if self.at is None or use.since is None or use.since.mono_ns >= use.at.mono_ns:
            return None
        return max(use.since, self.at)

    def adjoins(self, since: Instant | None) -> bool:
        """Whether what is counted from a moment on begins when the last look was taken."""
        return since is not None and self.at is not None and since.mono_ns == self.at.mono_ns

    def look(
        self, use: DeviceUse, since: Instant | None, processes: Sequence[Process]
    ) -> Interval | None:
        """Take in a look, but for energy.

        Args:
            use: what was found, later than what was found before.
            since: from when on it counts.
            processes: the same processes as in `use`, now that it is known whose they are.

        Returns:
            What the interval brought; None where no time was counted.
        """
        at = use.at
        begin = since or at
        pieces = self.timeline.pieces(begin.mono_ns, at.mono_ns)
        before = self._users if self.adjoins(since) else frozenset[Name | None]()
        self._enter_all(pieces, processes, begin, at)
        # Who found no room counts as nobody.
        kept = self._roster.get
        processes = [
            p if p.container is None or kept(p.container) else p._replace(container=None)
            for p in processes
        ]
        self._remember(use, processes)
        self._settle(at)
        self._show_memory()
        interval = None
        if since is not None and use.since is not None:
            time_ns, whole_ns = (at.mono_ns - start.mono_ns for start in (since, use.since))
            interval = self._count_time(pieces, time_ns)
            total = use.busy_ns
            if total is not None:
                if time_ns < whole_ns:
                    total = total * time_ns // whole_ns
                    processes = [_shortened(p, time_ns, whole_ns) for p in processes]
                self._count_busy(interval, total, processes, sole(pieces), before)
        self._looked(at)
        return interval

    def look_away(self, at: Instant) -> None:
        """Note a look at a GPU that carries MIG instances: of its own there is nothing to see."""
        self._users = frozenset()
        for entry in self._roster:
            entry.uses = False
        self._settle(at)
        self.withdraw()
        self._looked(at)

    def spend(self, total: int, idle: int, interval: Interval) -> None:
        """Take in the energy of an interval.

        Args:
            total: in millijoules.
            idle: of it, what would have been used anyway.
            interval: what the time brought; more than none.
        """
        parts, nobody = energy(total, idle, interval)
        for entry in self._roster:
            if entry.energy_mj is None and (entry.ended is None or entry.name in interval.held):
                entry.energy_mj = 0
        for container, part in parts.items():
            known = self._roster.get(container)
            if known is None:
                nobody += part
            else:
                known.energy_mj = (known.energy_mj or 0) + part
        self._energy_mj = (self._energy_mj or 0) + total
        self._energy_other_mj += nobody
        self._usage = None

    def waste(self, total: int) -> None:
        """Take in energy that falls to no container, in millijoules."""
        self._energy_mj = (self._energy_mj or 0) + total
        self._energy_other_mj += total
        self._usage = None

    def withdraw(self) -> None:
        """Let what was told of memory be unknown."""
        self._memory, self._memory_end_ns = _UNKNOWN, NEVER
        for entry in self._roster:
            entry.memory_bytes = None
        self._usage = None

    def expire(self, now_ns: int) -> bool:
        """Let go of what is no longer good; return whether anything was."""
        stale = self._memory_end_ns < now_ns
        if stale:
            self.withdraw()
        gone = self._roster.forget(now_ns)
        for container in gone:
            self.pending.forget(container)
            self._usage = None
        return stale or bool(gone)

    @property
    def due_ns(self) -> int:
        """The last moment at which nothing has to go."""
        ended = self._roster.first_end_ns()
        return min(self._memory_end_ns, NEVER if ended is None else ended + KEPT_NS)

    @property
    def left_out(self) -> int:
        """How many containers found no room."""
        return len(self._roster.refused)

    def usage(self) -> DeviceUsage | None:
        """Return what it comes to; None before the first look. The same while nothing changes."""
        if self._usage is None and self._start is not None and self.at is not None:
            roster = self._roster
            self._usage = DeviceUsage(
                self.device,
                self._start,
                self.at,
                tuple([entry.usage() for entry in roster]),
                self._memory.used,
                self._memory.reserved,
                self._memory.unattributed,
                self._busy_ns,
                None if self._busy_ns is None else self._busy_other_ns,
                self._elapsed_ns,
                self._unheld_ns,
                self._energy_mj,
                None if self._energy_mj is None else self._energy_other_mj,
                roster.forgotten_busy_ns,
                roster.forgotten_held_ns,
                roster.forgotten_energy_mj,
            )
        return self._usage

    def _enter(self, container: Name, pod: PodInfo | None, start: Instant) -> None:
        made_room = self._roster.enter(container, pod, start)
        if made_room is not None:
            self.pending.forget(made_room)

    def _enter_all(
        self, pieces: Sequence[Piece], processes: Sequence[Process], begin: Instant, at: Instant
    ) -> None:
        """See that all who held or used the device in an interval are in the account."""
        self._roster.refused.clear()
        cuts = [(piece.cut, begin) for piece in pieces]
        if not cuts or cuts[-1][0] is not self.timeline.last:
            cuts.append((self.timeline.last, at))
        for cut, start in cuts:
            if cut is not None:
                for one in cut.held:
                    self._enter(one.container, one.pod, max(start, cut.at))
        users = {p.container: p.pod for p in processes if p.container is not None}
        for container in sorted(users) if len(users) > 1 else users:
            self._enter(container, users[container], begin)

    def _remember(self, use: DeviceUse, processes: Sequence[Process]) -> None:
        """Note who uses the device now."""
        holding = self.timeline.at(use.at.mono_ns)
        alone = self._kept(holding[0].container) if len(holding) == 1 else None
        self._memory = memory(
            use.memory_used_bytes, use.memory_reserved_bytes, processes, alone, listed=use.listed
        )
        self._memory_end_ns = use.at.mono_ns + use.good_for_ns
        users = frozenset([p.whose(alone) for p in processes if p.there])
        self._users = users if use.listed else users | self._users
        for entry in self._roster:
            entry.uses = entry.name in self._users

    def _show_memory(self) -> None:
        told = self._memory
        for entry in self._roster:
            if entry.ended is None:
                nothing = 0 if told.whole else None
                entry.memory_bytes = told.containers.get(entry.name, nothing)

    def _settle(self, at: Instant) -> None:
        """Find out who has ended, by the holders of now and the users at the last look."""
        last = self.timeline.last
        holding = frozenset([one.container for one in last.held]) if last else frozenset()
        self._roster.settle(holding, max(at, last.at) if last else at)

    def _looked(self, at: Instant) -> None:
        self._start = self._start or at
        self.at = at
        self.timeline.forget(at.mono_ns)
        self._usage = None

    def _kept(self, container: Name | None) -> Name | None:
        """Return a container if it is in the account."""
        return container if container is not None and self._roster.get(container) else None

    def _count_time(self, pieces: Sequence[Piece], time_ns: int) -> Interval:
        parts, unheld = held_time(pieces)
        interval = Interval(time_ns, {}, unheld, None)
        for container, part in parts.items():
            entry = self._roster.get(container)
            if entry is None:
                interval.unheld_ns += part
            else:
                entry.held_ns += part
                interval.held[container] = part
        self._elapsed_ns += time_ns
        self._unheld_ns += interval.unheld_ns
        return interval

    def _count_busy(
        self,
        interval: Interval,
        total: int,
        processes: Sequence[Process],
        alone: Name | None,
        before: Collection[Name | None],
    ) -> None:
        found = busy(total, processes, alone, before)
        interval.busy, interval.busy_other_ns = {}, found.unattributed
        for container, part in found.containers.items():
            known = self._roster.get(container)
            if known is None:
                interval.busy_other_ns += part
            else:
                known.busy_ns = (known.busy_ns or 0) + part
                interval.busy[container] = part
        if found.whole:
            for entry in self._roster:
                if entry.busy_ns is None and (entry.ended is None or entry.name in interval.held):
                    entry.busy_ns = 0
        self._busy_ns = (self._busy_ns or 0) + sum(interval.busy.values()) + interval.busy_other_ns
        self._busy_other_ns += interval.busy_other_ns


def _shortened(process: Process, time_ns: int, whole_ns: int) -> Process:
    """Return a process with its busy time in a part of the interval."""
    if process.busy_ns is None:
        return process
    return process._replace(busy_ns=process.busy_ns * time_ns // whole_ns)
