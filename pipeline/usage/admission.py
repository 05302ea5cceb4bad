"""Who comes into the account of a device, and when their holdings begin."""

from collections.abc import Sequence

from pipeline.model import Instant, PodInfo
from pipeline.usage.container_accounts import Entry, Roster
from pipeline.usage.holder_timeline import Cut, Held, Piece
from pipeline.usage.holding_finalizer import Closing
from pipeline.usage.interval_samples import Name, Process


class Entrance:
    """Lets containers into an account.

    Args:
        roster: those that are in it.
        closing: closes what those had that have to make room.
    """

    def __init__(self, roster: Roster, closing: Closing) -> None:
        self._roster = roster
        self._closing = closing

    def holder(self, held: Held, start: Instant, now: Instant) -> None:
        """Let in a container that holds the device, from a moment on if it didn't before."""
        entry = self._enter(held.container, held.pod, start, now)
        if entry is not None:
            holding = entry.begin(start)
            holding.source, holding.evidence = held.source, held.evidence

    def holders(self, held: Sequence[Held], at: Instant) -> None:
        """Let in those who held the device at a look that nothing is counted up to."""
        for one in held:
            entry = self._roster.get(one.container)
            if entry is None or entry.awaited or entry.running is None:
                self.holder(one, at, at)

    def let_in(
        self,
        last: Cut | None,
        pieces: Sequence[Piece],
        processes: Sequence[Process],
        begin: Instant,
        at: Instant,
    ) -> None:
        """Let in all who held or used the device in an interval.

        Args:
            last: who holds it now.
            pieces: the interval, cut where the holders changed; empty where no time is counted.
            processes: those of the interval.
            begin: its beginning.
            at: its end, the moment of the look.
        """
        self._roster.refused.clear()
        for cut in [piece.cut for piece in pieces]:
            if cut is None or cut is last:
                continue
            for one in cut.held:
                # Who is known has been let in when that was heard of.
                if self._roster.get(one.container) is None:
                    self.holder(one, max(begin, cut.at), at)
        if last is not None:
            # Who came after the look was taken has no part in the interval.
            start = max(begin if pieces and pieces[-1].cut is last else at, last.at)
            for one in last.held:
                self.holder(one, start, at)
        users: dict[Name, Process] = {}
        for process in processes:
            container = process.container
            if container is not None:
                known = users.get(container)
                if known is None or process.weight > known.weight:
                    users[container] = process
        for container in sorted(users) if len(users) > 1 else users:
            self._user(container, users[container], begin, at)

    def _user(self, container: Name, process: Process, begin: Instant, at: Instant) -> None:
        entry = self._enter(container, process.pod, begin, at)
        if entry is None:
            return
        if not entry.uses:
            entry.used_from_ns = begin.mono_ns
        entry.used_to_ns = at.mono_ns
        running = entry.running
        later = running if running is not None and running.start.mono_ns > at.mono_ns else None
        if running is not None and later is None and not entry.awaited:
            return
        last = entry.closing[-1].end if entry.closing else None
        apart = last is None or last.mono_ns <= begin.mono_ns
        # If it came and went, so did the holding before, unless that reaches into the time.
        passed = begin.mono_ns < at.mono_ns and (process.busy_ns or not entry.closed) and apart
        if later is not None:
            # It began to hold the device only after the look.
            if process.there and apart:
                entry.begin_before(begin)
            elif passed:
                entry.came_before(begin, at)
                self._roster.closing = True
        elif process.there or passed:
            entry.begin(begin)

    def _enter(
        self, container: Name, pod: PodInfo | None, start: Instant, now: Instant
    ) -> Entry | None:
        before = self._roster.get(container)
        if before is not None and not container[3] and before.over(start):
            # Without a uid nobody knows whether it is the same pod.
            self._roster.drop(before)
            self._closing.let_go(before, now.mono_ns)
        entry, made_room = self._roster.enter(container, pod, start)
        if made_room is not None:
            self._closing.let_go(made_room, now.mono_ns)
        return entry
