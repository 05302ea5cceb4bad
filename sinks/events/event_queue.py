"""A queue that decides which Event to write next, and when."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from pipeline.model import NS, Instant
from sinks.events.affected_pods import EventSubject, PodError

MAX_ENTRIES: Final = 1024
"""Maximum number of entries. An entry has the errors of one code on one device and pod."""

REMEMBERED: Final = 3600.0
"""Seconds that an entry is kept after its last error, or after the end of its `repeat` interval if
that is later. API servers keep Events about as long. Errors not reported by then are dropped."""

_MINUTE_NS: Final = 60 * NS


@dataclass(slots=True)
class WrittenEvent:
    """An Event as it was last written.

    Attributes:
        name: name of the Event.
        count: number of errors that it reports.
    """

    name: str
    count: int


@dataclass(slots=True)
class PendingEvent:
    """Errors of one code on one device that affected one pod.

    Attributes:
        last: the last error.
        first: time of the first error that is not reported yet.
        count: number of errors that are not reported yet.
        written: the existing Event; None if none is known.
        name: name of the Event to create, from the first attempt until the Event is written or
            refused; else empty. A retry uses the same name, because the response may be lost.
        done_ns: when the Event was last written or refused, on the monotonic clock; None before.
        failed_ns: when a write of it last failed for a reason that may affect other Events too;
            0 before. Entries that have not failed come first.
    """

    last: PodError
    first: Instant
    count: int
    written: WrittenEvent | None = None
    name: str = ""
    done_ns: int | None = None
    failed_ns: int = 0


class EventQueue:
    """Counts errors per pod, device and code until an Event may be written.

    Attributes:
        done: serial of the last error that was handled; None before the first.
    """

    def __init__(self) -> None:
        self.done: int | None = None
        self._entries: dict[EventSubject, PendingEvent] = {}
        self._written_ns: deque[int] = deque()

    def add(self, subject: EventSubject, error: PodError) -> bool:
        """Add an error to its entry. Return False if the queue is full: the error is not added."""
        entry = self._entries.pop(subject, None)
        if entry is None:
            if len(self._entries) >= MAX_ENTRIES and not self._make_room():
                return False
            entry = PendingEvent(error, error.at, 0)
        if not entry.count:
            entry.first = error.at
        entry.last = error
        entry.count += 1
        # Move it to the end, so that the first entry is the one with the oldest last error.
        self._entries[subject] = entry
        return True

    def _make_room(self) -> bool:
        idle = next((subject for subject, entry in self._entries.items() if not entry.count), None)
        if idle is None:
            return False
        del self._entries[idle]
        return True

    def next(
        self, now: Instant, repeat: float, per_minute: int
    ) -> tuple[EventSubject, PendingEvent] | None:
        """Return the Event to write now; None if there is none.

        Args:
            now: the current time.
            repeat: minimum number of seconds between two writes of an Event.
            per_minute: maximum number of writes per minute.
        """
        first = self._first(now, repeat, per_minute)
        if first is None or first[0] > now.mono_ns:
            return None
        return first[1], self._entries[first[1]]

    def seconds_left(self, now: Instant, repeat: float, per_minute: int) -> float | None:
        """Return the seconds until an Event can be written; None if no error waits."""
        first = self._first(now, repeat, per_minute)
        return None if first is None else max(first[0] - now.mono_ns, 0) / NS

    def _first(
        self, now: Instant, repeat: float, per_minute: int
    ) -> tuple[int, EventSubject] | None:
        """Return when the next Event can be written, and its subject; None if no error waits."""
        due = [
            (max(self._earliest_ns(entry, repeat), entry.failed_ns), subject)
            for subject, entry in self._entries.items()
            if entry.count
        ]
        if not due:
            return None
        due_ns, subject = min(due, key=itemgetter(0))
        written_ns = self._written_ns
        while written_ns and written_ns[0] <= now.mono_ns - _MINUTE_NS:
            written_ns.popleft()
        if len(written_ns) >= per_minute:
            due_ns = max(due_ns, written_ns[-per_minute] + _MINUTE_NS)
        return due_ns, subject

    def expire(self, now: Instant, repeat: float) -> int:
        """Remove entries that are too old; return the number of their errors without an Event.

        Without this, an Event that can never be written would be retried forever.

        Args:
            now: the current time.
            repeat: minimum number of seconds between two writes of an Event.
        """
        before_ns = now.mono_ns - round(REMEMBERED * NS)
        expired = {
            subject: entry
            for subject, entry in self._entries.items()
            if max(entry.last.at.mono_ns, self._earliest_ns(entry, repeat)) < before_ns
        }
        for subject in expired:
            del self._entries[subject]
        return sum(entry.count for entry in expired.values())

    def retain(self, wanted: Callable[[EventSubject], bool]) -> None:
        """Remove the waiting errors of subjects that are not wanted any more.

        If an Event of a subject was written or refused, the written Event and that time are kept:
        the subject may be wanted again.

        Args:
            wanted: function that returns whether errors of a pod, device and code are reported.
        """
        for subject, entry in list(self._entries.items()):
            if wanted(subject):
                continue
            if entry.done_ns is None:
                del self._entries[subject]
            else:
                entry.name, entry.count = "", 0

    @property
    def waiting(self) -> int:
        """Number of errors that are not reported yet."""
        return sum(entry.count for entry in self._entries.values())

    def record_written(self, pending: PendingEvent, written: WrittenEvent, now: Instant) -> None:
        """Record that an Event was written with all unreported errors of its entry."""
        pending.written = written
        self.record_refused(pending, now)

    def record_refused(self, pending: PendingEvent, now: Instant) -> int:
        """Record that an Event was refused. Drop its unreported errors; return their number.

        Later errors wait as long as if the Event had been written, so that repeated refusals do not
        use up the writes per minute.
        """
        self._written_ns.append(now.mono_ns)
        count, pending.count = pending.count, 0
        pending.name, pending.done_ns = "", now.mono_ns
        return count

    def record_failed(self, pending: PendingEvent, now: Instant) -> None:
        """Record a failed write. Entries that have not failed come first."""
        pending.failed_ns = now.mono_ns

    @staticmethod
    def _earliest_ns(pending: PendingEvent, repeat: float) -> int:
        return 0 if pending.done_ns is None else pending.done_ns + round(repeat * NS)
