"""When the annotation is looked at and when it is written."""

from typing import Final

from pipeline.model import NS, Instant

SETTLE: Final = 1.0
"""Seconds from a change to its writing: what belongs to it comes within that time."""


class WriteSchedule:
    """Soon after a change, never twice within an interval, and now and then without a change.

    A patch without an answer may still be made, minutes later: then what stands there is looked at
    after the interval, and after twice as long each time, until a refresh does it anyway.

    Args:
        min_interval: seconds from one patch to the next at least.
        refresh: seconds after which it is written again, changed or not.
        last: when the last patch was made, as far as is known.
    """

    def __init__(self, min_interval: float, refresh: float, last: Instant | None = None) -> None:
        self._interval_ns = round(min_interval * NS)
        self._refresh_ns = round(refresh * NS)
        self._changed: int | None = None
        self._written: int | None = None
        self._looked: int | None = None
        self._doubt_ns = 0
        self._check: int | None = None
        self._free = 0
        if last is not None:
            self.record_patch(last)

    @property
    def pending(self) -> bool:
        """Whether a change waits to be written."""
        return self._changed is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether a patch without an answer may still be made."""
        return self._check is not None

    def change(self, now: Instant) -> None:
        """What should stand there isn't what was written; said again, it changes nothing."""
        if self._changed is None:
            self._changed = now.mono_ns

    def cancel_change(self) -> None:
        """What was written is what should stand there."""
        self._changed = None

    def record_patch(self, now: Instant) -> None:
        """A patch was made, or may have been: the next one keeps its distance."""
        self._free = now.mono_ns + self._interval_ns

    def record_unanswered(self, now: Instant) -> None:
        """A patch may have been made, or may be made yet."""
        self.record_patch(now)
        self._doubt_ns = self._interval_ns
        self._check = now.mono_ns + self._doubt_ns

    def record_write(self, now: Instant, *, lasting: bool = True) -> None:
        """What should stand there does; without a refresh, unless it is to last."""
        self._written, self._changed = now.mono_ns if lasting else None, None

    def record_read(self, now: Instant) -> None:
        """What stands there was read."""
        self._looked = now.mono_ns
        if self._check is not None and now.mono_ns >= self._check:
            self._doubt_ns *= 2
            over = self._doubt_ns >= self._refresh_ns
            self._check = None if over else now.mono_ns + self._doubt_ns

    def reset(self) -> None:
        """Begin anew, but for the distance between patches."""
        self._changed = self._written = self._looked = self._check = None

    def should_read(self, now: Instant) -> bool:
        """Whether to read what stands there, before anything is written over it."""
        if self._looked is None or now.mono_ns >= self._looked + self._refresh_ns:
            return True
        return self._check is not None and now.mono_ns >= self._check

    def should_write(self, now: Instant) -> bool:
        """Whether it is time to write."""
        due = self._due()
        return due is not None and now.mono_ns >= due

    def seconds_until_allowed(self, now: Instant) -> float:
        """Return the seconds until a patch keeps its distance from the one before, 0 if it does."""
        return max(self._free - now.mono_ns, 0) / NS

    def seconds_left(self, now: Instant) -> float | None:
        """Return the seconds until there is something to do; None if nothing asks for it.

        That is to write or, after a patch without an answer, to look.
        """
        times = [time for time in (self._due(), self._check) if time is not None]
        return max(min(times) - now.mono_ns, 0) / NS if times else None

    def _due(self) -> int | None:
        due = [] if self._changed is None else [self._changed + round(SETTLE * NS)]
        if self._written is not None:
            due.append(self._written + self._refresh_ns)
        return max(min(due), self._free) if due else None
