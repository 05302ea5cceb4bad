"""What is to be written on which pod, and when."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS, Instant
from sinks.events.xid_errors import EventSubject, PodError

MAX_ENTRIES: Final = 1024
"""Pods, devices and codes of which it is remembered what was written."""

REMEMBERED: Final = 3600.0
"""Seconds for which that is so after the last error, or after it may be told, if that is later; API
servers keep Events for about as long. What isn't told until then is told no more."""

_MINUTE_NS: Final = 60 * NS


@dataclass(slots=True)
class WrittenEvent:
    """An Event, as it was written last.

    Attributes:
        name: of the Event.
        count: of the errors that it tells of.
    """

    name: str
    count: int


@dataclass(slots=True)
class PendingEvent:
    """What is known of a pod, a device and a code.

    Attributes:
        last: the last error.
        first: when the first one happened that isn't told yet.
        count: how many aren't.
        written: the Event that there is; None where there is none, as far as is known.
        name: of the Event that is to be made, once that was tried: its answer may have been lost.
        done_ns: when it was written or refused last, on the monotonic clock; None before that.
        failed_ns: when that failed last, for a reason that may be of all, or of this one alone:
            all others come first then.
    """

    last: PodError
    first: Instant
    count: int
    written: WrittenEvent | None = None
    name: str = ""
    done_ns: int | None = None
    failed_ns: int = 0


class EventQueue:
    """Adds errors up until it is time to tell them.

    Attributes:
        done: serial of the last error that was taken in; None before the first look.
    """

    def __init__(self) -> None:
        self.done: int | None = None
        self._entries: dict[EventSubject, PendingEvent] = {}
        self._written_ns: deque[int] = deque()

    def add(self, subject: EventSubject, stroke: PodError) -> bool:
        """Take in an error; return False if there is no room for it."""
        entry = self._entries.pop(subject, None)
        if entry is None:
            if len(self._entries) >= MAX_ENTRIES and not self._make_room():
                return False
            entry = PendingEvent(stroke, stroke.at, 0)
        if not entry.count:
            entry.first = stroke.at
        entry.last = stroke
        entry.count += 1
        # Behind all others: the first of them is the one that had none for longest.
        self._entries[subject] = entry
        return True

    def _make_room(self) -> bool:
        idle = next((struck for struck, entry in self._entries.items() if not entry.count), None)
        if idle is None:
            return False
        del self._entries[idle]
        return True

    def next(
        self, now: Instant, repeat: float, per_minute: int
    ) -> tuple[EventSubject, PendingEvent] | None:
        """Return what is to be written now; None if there is nothing.

        Args:
            now: the present moment.
            repeat: seconds in which one Event is written once.
            per_minute: how many are written in a minute.
        """
        if self._full(now, per_minute):
            return None
        found = min(
            ((self._due_ns(entry, repeat), place) for place, entry in self._entries.items()),
            default=None,
            key=lambda item: item[0],
        )
        if found is None or found[0] > now.mono_ns:
            return None
        return found[1], self._entries[found[1]]

    def seconds_left(self, now: Instant, repeat: float, per_minute: int) -> float | None:
        """Return the seconds until there is something to write; None if nothing waits."""
        due_ns = min(
            (self._due_ns(entry, repeat) for entry in self._entries.values() if entry.count),
            default=None,
        )
        if due_ns is None:
            return None
        if self._full(now, per_minute):
            due_ns = max(due_ns, self._written_ns[-per_minute] + _MINUTE_NS)
        return max(due_ns - now.mono_ns, 0) / NS

    def expire(self, now: Instant, repeat: float) -> int:
        """Let go of what is too old, told or not; return how many errors aren't told by that.

        Else what can never be written would be tried for ever.

        Args:
            now: the present moment.
            repeat: seconds in which one Event is written once.
        """
        before_ns = now.mono_ns - round(REMEMBERED * NS)
        old = {
            struck: entry
            for struck, entry in self._entries.items()
            if max(entry.last.at.mono_ns, self._free_ns(entry, repeat)) < before_ns
        }
        for struck in old:
            del self._entries[struck]
        return sum(entry.count for entry in old.values())

    def retain(self, wanted: Callable[[EventSubject], bool]) -> None:
        """Let go of errors that wait and that nobody wants to have told any more.

        What was written, and when, stays known: they may be wanted again.

        Args:
            wanted: whether errors of a pod, a device and a code are told.
        """
        for struck, entry in list(self._entries.items()):
            if wanted(struck):
                continue
            if entry.done_ns is None:
                del self._entries[struck]
            else:
                entry.name, entry.count = "", 0

    @property
    def waiting(self) -> int:
        """How many errors are not told yet."""
        return sum(entry.count for entry in self._entries.values())

    def record_written(
        self, pending: PendingEvent, written: WrittenEvent, count: int, now: Instant
    ) -> None:
        """Note what stands there now.

        Args:
            pending: what is known of whom it is about.
            written: the Event.
            count: how many errors it tells of that weren't told before.
            now: the present moment.
        """
        pending.written = written
        self._done(pending, count, now)

    def record_refused(self, pending: PendingEvent, now: Instant) -> int:
        """Give up what isn't told of one; return how many errors that is.

        What comes later is told no sooner than if this had been written: who is refused again and
        again must not use up what may be written in a minute.
        """
        count = pending.count
        self._done(pending, count, now)
        return count

    def record_failed(self, pending: PendingEvent, now: Instant) -> None:
        """Note that it couldn't be written now: it comes behind those that didn't fail."""
        pending.failed_ns = now.mono_ns

    def _done(self, pending: PendingEvent, count: int, now: Instant) -> None:
        self._written_ns.append(now.mono_ns)
        pending.name, pending.done_ns = "", now.mono_ns
        pending.count -= count
        pending.first = pending.last.at

    @staticmethod
    def _free_ns(pending: PendingEvent, repeat: float) -> int:
        return 0 if pending.done_ns is None else pending.done_ns + round(repeat * NS)

    def _due_ns(self, pending: PendingEvent, repeat: float) -> int:
        return max(self._free_ns(pending, repeat), pending.failed_ns) if pending.count else 1 << 63

    def _full(self, now: Instant, per_minute: int) -> bool:
        while self._written_ns and self._written_ns[0] <= now.mono_ns - _MINUTE_NS:
            self._written_ns.popleft()
        return len(self._written_ns) >= per_minute
