"""When a holding that has ended is told of: once nothing more is to come for it, each once."""

from collections.abc import Mapping

from pipeline.usage.container_accounts import Entry, Roster
from pipeline.usage.ended_holdings import Ended
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.interval_samples import Interval, Name


class Closing:
    """Closes the holdings of one device.

    Attributes:
        pending: of a MIG instance, what came since its GPU's energy was last split.

    Args:
        device: its uuid.
        roster: the containers with their holdings.
        ended: where the holdings go.
    """

    def __init__(self, device: str, roster: Roster, ended: Ended) -> None:
        self.pending = Interval()
        self._device = device
        self._roster = roster
        self._ended = ended

    def pend(self, interval: Interval) -> None:
        """Add what an interval brought to what is pending."""
        if self.pending.time_ns:
            self.pending.add(interval)
        else:
            self.pending = interval

    def take_pending(self) -> Interval:
        """Return what is pending, once."""
        interval, self.pending = self.pending, Interval()
        return interval

    def publish(self, at_ns: int, now_ns: int) -> None:
        """Close what a look has passed, but for what energy is still to come for.

        Args:
            at_ns: when the device was last looked at.
            now_ns: now, by the monotonic clock.
        """
        roster = self._roster
        if not roster.closing:
            return
        roster.closing = False
        for entry in roster:
            for one in [*entry.closing]:
                if one.end and one.end.mono_ns <= at_ns and one not in self.pending.times:
                    self._close(entry, one, now_ns)
            roster.closing = roster.closing or bool(entry.closing)

    def late(self, good_for_ns: int, now_ns: int) -> bool:
        """Close what has waited for a look for so long; return whether there was any."""
        found = False
        for entry in self._roster if self._roster.closing else ():
            for one in [*entry.closing]:
                if one.end and one.end.mono_ns + good_for_ns < now_ns:
                    self._close(entry, one, now_ns)
                    found = True
        return found

    def due_ns(self, good_for_ns: int) -> int | None:
        """Return the last moment at which nothing has waited for so long; None if nothing waits."""
        if not self._roster.closing:
            return None
        ends = [e.closing[0].end for e in self._roster if e.closing]
        return min((end.mono_ns + good_for_ns for end in ends if end), default=None)

    def flush(self, now_ns: int) -> None:
        """Close all that have ended, since it may be that no look comes any more."""
        for entry in self._roster:
            self.close_all(entry, now_ns)

    def close_all(self, entry: Entry, now_ns: int) -> None:
        """Close all of a container's that have ended."""
        for one in [*entry.closing]:
            self._close(entry, one, now_ns)

    def let_go(self, entry: Entry, now_ns: int) -> None:
        """Close all of a container that is kept no more; what comes for it is nobody's."""
        self.close_all(entry, now_ns)
        self.pending.forget(entry.name)
        self._roster.leave(entry)

    def rename(
        self, before: Name, name: Name, folded: Mapping[HoldingAccount, HoldingAccount]
    ) -> None:
        """Let what is pending of a container be that of another name.

        Args:
            before: its name so far.
            name: its name now.
            folded: holdings that are none any more, each with the one that stands for it.
        """
        pending = self.pending
        for parts in (pending.held, pending.busy or {}):
            if before in parts:
                parts[name] = parts.get(name, 0) + parts.pop(before)
        if before in pending.concealed:
            pending.concealed = pending.concealed - {before} | {name}
        for one, other in folded.items():
            if one in pending.times:
                time_ns = pending.times.pop(one)
                pending.times[other] = max(time_ns, pending.times.get(other, 0))

    def _close(self, entry: Entry, one: HoldingAccount, now_ns: int) -> None:
        one.finish()
        entry.closing.remove(one)
        if one.end is not None:
            entry.closed = one.end if entry.closed is None else max(entry.closed, one.end)
        if self.pending.times.pop(one, None) is not None and not entry.open():
            self.pending.forget(entry.name)
        if not one.void:
            self._ended.add(one.shown(self._device, entry.subject, entry.pod, 0), now_ns)
