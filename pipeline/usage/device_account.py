"""The account of one device."""

from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.model import NS, DeviceUsage, DeviceUse, Instant
from pipeline.usage.account_ids import Ids
from pipeline.usage.admission import Entrance
from pipeline.usage.container_accounts import KEPT_NS
from pipeline.usage.departure import Leaving
from pipeline.usage.device_totals import Sums
from pipeline.usage.ended_holdings import Ended
from pipeline.usage.energy_meter import Meter
from pipeline.usage.holder_timeline import Held, Timeline
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.holding_finalizer import Closing
from pipeline.usage.interval_samples import Interval, Name, Process
from pipeline.usage.interval_split import (
    Memory,
    busy,
    busy_beside_mps,
    concealed,
    holders,
    memory,
    sole,
)
from pipeline.usage.renames import Meant, Renaming, never
from pipeline.usage.restored_accounts import Restored, restored

NEVER: Final = 1 << 63

AWAITED_NS: Final = 60 * NS
"""How long after the first look a container may still show itself that was there when podgpu last
ran; else it ended then."""

_BEFORE_NS: Final = 60 * NS
"""How long before the present a first look may lie, or an error that is told of, at most."""

_GOOD_FOR_NS: Final = 15 * NS
"""Three of the usual intervals, where no look has told of others yet."""

_UNKNOWN: Final = Memory(None, None, None, {}, whole=False)


class DeviceAccount:
    """Adds up what looks at one device bring. It begins with the first of them, or is restored.

    Attributes:
        device: its uuid.
        timeline: who held it when.
        meter: its energy counter, and what it draws when idle; of a MIG instance not used.
        roster: the containers in the account.
        renaming: finds those of whose name a part was missing.
        at: when it was last looked at; None before the first look.

    Args:
        device: its uuid.
        ended: where holdings go of which nothing more is to come.
        ids: makes the ids of this account, and of its containers and holdings.
        timeline: who held it so far.
    """

    def __init__(
        self, device: str, ended: Ended, ids: Ids, timeline: Timeline | None = None
    ) -> None:
        self.device = device
        self._ids = ids
        self._id = ids()
        self.timeline = timeline or Timeline()
        self.meter = Meter()
        self.at: Instant | None = None
        self._start: Instant | None = None
        self._sums = Sums(ids)
        self.roster = self._sums.roster
        self._closing = Closing(device, self.roster, ended)
        self._entrance = Entrance(self.roster, self._closing)
        self._leaving = Leaving(self.timeline, self.roster, self._entrance)
        self.renaming = Renaming(self.timeline, self.roster, self._closing)
        self._memory = _UNKNOWN
        self._memory_end_ns = NEVER
        self._good_for_ns = _GOOD_FOR_NS
        self._users: frozenset[Name | None] = frozenset()
        self._listed_end_ns = -NEVER
        self._restored_at: Instant | None = None
        self._await_ns = NEVER
        self._usage: DeviceUsage | None = None

    def hold(
        self, held: tuple[Held, ...], at: Instant, *, known: bool, meant: Meant = never
    ) -> None:
        """Note who holds the device from a moment on.

        Args:
            held: the containers.
            at: the moment.
            known: whether a source tells who holds the device.
            meant: tells what a pod's name meant before its uid was known.
        """
        self.renamed(self.renaming.hold(held, meant))
        self.timeline.put(held, at, known=known)
        last = self.timeline.last
        if self.at is None or self._unseen or last is None:
            # Until somebody looks, one source may tell half of a container's name.
            self.timeline.forget(at.mono_ns - _BEFORE_NS)
            self._usage = None
            return
        moment = max(at, last.at, self.at)
        for one in held:
            self._entrance.holder(one, moment, at)
        self._settle(moment)
        self._usage = None

    def restore(self, told: DeviceUsage, now: Instant) -> None:
        """Go on from where an account stood, before the first look.

        Those who hold the device have to be told of anew.
        """
        found: Restored = restored(told, now, self._ids)
        self._id = found.id
        self._start, self.at, self._restored_at = found.start, found.at, found.at
        found.add_up(self._sums)
        for entry in (*self.roster, *found.nameless):
            self._closing.close_all(entry, now.mono_ns)
        self._usage = None

    def since(self, use: DeviceUse) -> Instant | None:
        """Return from when on a look counts; None where it tells of no time that can be counted."""
        if self.at is None or self._unseen:
            return None
        if use.since is None or use.since.mono_ns >= use.at.mono_ns:
            return None
        return max(use.since, self.at)

    def adjoins(self, since: Instant | None) -> bool:
        """Whether what is counted from a moment on begins when the last look was taken."""
        return since is not None and self.at is not None and since.mono_ns == self.at.mono_ns

    def look(
        self, use: DeviceUse, since: Instant | None, processes: Sequence[Process]
    ) -> Interval | None:
        """Take in a look, but for energy. `publish` has to follow once that is taken in.

        Args:
            use: what was found, later than what was found before.
            since: from when on it counts.
            processes: the same processes as in `use`, now that it is known whose they are.

        Returns:
            What the interval brought; None where no time was counted.
        """
        at = use.at
        begin = since or at
        self.renamed(self.renaming.look(processes))
        pieces = self.timeline.pieces(begin.mono_ns, at.mono_ns)
        before = self._users if self.adjoins(since) else frozenset[Name | None]()
        if not pieces:
            # What has changed since the look was taken comes after it.
            self._entrance.holders(self.timeline.at(at.mono_ns), at)
        self._entrance.let_in(self.timeline.last, pieces, processes, begin, at)
        # Who found no room counts as nobody.
        kept = self.roster.get
        processes = [
            p if p.container is None or kept(p.container) else p._replace(container=None)
            for p in processes
        ]
        self._remember(use, processes, begin)
        shown = self._memory
        missed = self._leaving.miss(at, self.at or at)
        self._settle(at, missed)
        times = self._pass_time(since, at, shown)
        interval = None
        if since is not None and use.since is not None:
            time_ns, whole_ns = (at.mono_ns - start.mono_ns for start in (since, use.since))
            interval = self._sums.count_time(pieces, time_ns, times)
            others = {*before, *holders(pieces)} if use.mps else set[Name | None]()
            if use.mps:
                self._sums.conceal(interval, concealed(processes, others))
            if (total := use.busy_ns) is not None:
                # Nothing is busy for longer than there was time.
                total = min(total, whole_ns) * time_ns // whole_ns
                processes = [p.within(time_ns, whole_ns) for p in processes]
                if use.mps:
                    found = busy_beside_mps(total, processes, interval.concealed, others)
                else:
                    found = busy(total, processes, sole(pieces), before, listed=use.listed)
                self._sums.count_busy(interval, found)
        self._leaving.come_back(missed, at)
        self._good_for_ns = use.good_for_ns
        self._looked(at)
        return interval

    def look_away(self, at: Instant) -> None:
        """Note a look at a GPU that carries MIG instances: of its own there is nothing to see."""
        self._use_no_more(at)
        self._settle(at)
        self.withdraw()
        self._pass_time(None, at, _UNKNOWN)
        self._looked(at)

    def spend(self, total: int, idle: int, interval: Interval) -> None:
        """Take in the energy of an interval.

        Args:
            total: in millijoules.
            idle: of it, what would have been used anyway.
            interval: what the time brought; more than none.
        """
        self._sums.count_energy(total, idle, interval)
        self._usage = None

    def waste(self, total: int) -> None:
        """Take in energy that falls to no container, in millijoules."""
        self._sums.waste(total, total)
        self._usage = None

    @property
    def pending(self) -> Interval:
        """Of a MIG instance, what came since its GPU's energy was last split."""
        return self._closing.pending

    def pend(self, interval: Interval) -> None:
        """Note what an interval of a MIG instance brought, until its GPU's energy is split."""
        self._closing.pend(interval)

    def take_pending(self) -> Interval:
        """Return what was noted so, once."""
        return self._closing.take_pending()

    def publish(self, now_ns: int) -> None:
        """Tell of the holdings that a look has passed, now that it is wholly taken in."""
        if self.at is not None:
            self._closing.publish(self.at.mono_ns, now_ns)
            self._usage = None

    def flush(self, now_ns: int) -> None:
        """Tell of all holdings that have ended, since it may be that no look comes any more."""
        self._closing.flush(now_ns)
        self._usage = None

    def leave(self, at: Instant, now_ns: int) -> None:
        """Let all holdings end at a moment: the device is gone, or its account is."""
        moment = at if self.at is None else max(at, self.at)
        self._use_no_more(moment)
        self._give_up()
        for entry in self.roster:
            if entry.running is not None:
                self.roster.end(entry, moment)
        self._closing.take_pending()
        self.withdraw()
        self.flush(now_ns)

    def withdraw(self) -> None:
        """Let what was told of memory be unknown."""
        self._memory, self._memory_end_ns = _UNKNOWN, NEVER
        self.roster.withdraw_memory()
        self._usage = None

    def expire(self, now_ns: int) -> bool:
        """Let go of what is no longer good; return whether anything was."""
        changed = self._memory_end_ns < now_ns
        if changed:
            self.withdraw()
        if self._await_ns < now_ns:
            self._give_up()
            self.publish(now_ns)
            changed = True
        if self._closing.late(self._good_for_ns, now_ns):
            self._usage, changed = None, True
        for entry in self.roster.forget(now_ns):
            self._closing.let_go(entry, now_ns)
            self._usage, changed = None, True
        return changed

    @property
    def due_ns(self) -> int:
        """The last moment at which nothing has to go."""
        due_ns = min(self._memory_end_ns, self._await_ns)
        ended_ns = self.roster.first_end_ns()
        late_ns = self._closing.due_ns(self._good_for_ns)
        if ended_ns is not None:
            due_ns = min(due_ns, ended_ns + KEPT_NS)
        return due_ns if late_ns is None else min(due_ns, late_ns)

    @property
    def left_out(self) -> int:
        """How many containers found no room."""
        return len(self.roster.refused)

    def usage(self) -> DeviceUsage | None:
        """Return what it comes to; None before the first look. The same while nothing changes."""
        at = self.at
        if self._usage is None and self._start is not None and at is not None:
            self._usage = self._sums.shown(self.device, self._id, self._start, at, self._memory)
        return self._usage

    def altered(self) -> None:
        """Note that something of its containers was changed from outside."""
        self._usage = None

    def renamed(self, names: Iterable[tuple[Name, Name]]) -> None:
        """Note that containers go on under other names: each with its name so far, and its name."""
        for before, name in names:
            self._users = frozenset([name if one == before else one for one in self._users])
            self._memory.rename(before, name)
            self._usage = None

    def _remember(self, use: DeviceUse, processes: Sequence[Process], begin: Instant) -> None:
        """Note who uses the device now."""
        holding = self.timeline.at(use.at.mono_ns)
        alone = self._kept(holding[0].container) if len(holding) == 1 else None
        self._memory = memory(
            use.memory_used_bytes, use.memory_reserved_bytes, processes, alone, listed=use.listed
        )
        self._memory_end_ns = use.at.mono_ns + use.good_for_ns
        users = frozenset([p.whose(alone) for p in processes if p.there])
        if use.listed:
            self._listed_end_ns = self._memory_end_ns
        elif use.at.mono_ns <= self._listed_end_ns:
            users |= self._users
        self._users = users
        for entry in self.roster:
            uses = entry.name in self._users
            if uses and not entry.uses:
                entry.used_from_ns = begin.mono_ns
            elif entry.uses and not uses:
                entry.used_to_ns = use.at.mono_ns
            entry.uses = uses

    def _use_no_more(self, at: Instant) -> None:
        self._users = frozenset()
        for entry in self.roster:
            if entry.uses:
                entry.uses, entry.used_to_ns = False, at.mono_ns

    def _pass_time(
        self, since: Instant | None, at: Instant, shown: Memory
    ) -> dict[HoldingAccount, int]:
        """Let time go on to a look that showed this; return what was counted of each holding."""
        at_ns, since_ns = at.mono_ns, None if since is None else since.mono_ns
        adjoins, times = self.adjoins(since), dict[HoldingAccount, int]()
        told, elapsed_ns = shown.containers, self._sums.elapsed_ns
        nothing = 0 if shown.whole else None
        for entry in self.roster:
            running = entry.running
            if running is not None and entry.awaited:
                running.await_sight(since_ns, at_ns, elapsed_ns)
                continue
            if running is None and not entry.closing:
                continue
            for one in entry.open():
                counted_ns = one.pass_time(since_ns, at_ns, elapsed_ns, adjoins=adjoins)
                if counted_ns:
                    times[one] = counted_ns
            has = told.get(entry.name, nothing)
            if running is not None:
                entry.memory_bytes = has
            now = running if running is not None and running.start.mono_ns <= at_ns else None
            if now is None:
                now = entry.covering(at_ns)
            if now is not None:
                now.see_memory(has)
        return times

    def _settle(self, moment: Instant, but: frozenset[Name] = frozenset()) -> None:
        """Find out who has ended, by the holders of now and the users at the last look."""
        self._leaving.settle(moment, self.at or moment, but)
        if self.roster.closing:
            # Where no process can be seen, memory is a holder's only as long as it is one.
            gone = [e.name for e in self.roster if e.ended and e.name in self._memory.containers]
            self._memory = self._memory.without(gone)

    def _give_up(self) -> None:
        """Let those have ended when podgpu last ran that were there then and not since."""
        self._await_ns = NEVER
        for entry in self.roster:
            if entry.awaited and self._restored_at is not None:
                entry.give_up(self._restored_at)
                self.roster.closing = True
        self._usage = None

    def _looked(self, at: Instant) -> None:
        if self._unseen:
            self._await_ns = at.mono_ns + AWAITED_NS
        self._start = self._start or at
        self.at = at
        self.timeline.forget(at.mono_ns - _BEFORE_NS)
        self.roster.pass_look(at.mono_ns)
        self._usage = None

    @property
    def _unseen(self) -> bool:
        """Whether it was restored, and nobody has looked since."""
        return self._restored_at is not None and self._restored_at is self.at

    def _kept(self, container: Name | None) -> Name | None:
        """Return a container if it is in the account."""
        return container if container is not None and self.roster.get(container) else None
