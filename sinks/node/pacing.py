"""When the annotation is looked at and when it is written."""

from typing import Final

from pipeline.model import NS, Instant

SETTLE: Final = 1.0
"""Seconds from a change to its writing: what belongs to it comes within that time."""


class Pacing:
    """Soon after a change, never twice within an interval, and now and then without a change.

    Args:
        min_interval: seconds from one patch to the next at least.
        refresh: seconds after which it is written again, changed or not.
    """

    def __init__(self, min_interval: float, refresh: float) -> None:
        self._interval_ns = round(min_interval * NS)
        self._refresh_ns = round(refresh * NS)
        self._changed: int | None = None
        self._written: int | None = None
        self._looked: int | None = None
        self._free = 0

    @property
    def pending(self) -> bool:
        """Whether a change waits to be written."""
        return self._changed is not None

    def change(self, now: Instant) -> None:
        """What should stand there isn't what was written; said again, it changes nothing."""
        if self._changed is None:
            self._changed = now.mono_ns

    def settle(self) -> None:
        """What was written is what should stand there."""
        self._changed = None

    def patched(self, now: Instant) -> None:
        """A patch was made, or may have been: the next one keeps its distance."""
        self._free = now.mono_ns + self._interval_ns

    def wrote(self, now: Instant) -> None:
        """What should stand there does."""
        self._written, self._changed = now.mono_ns, None

    def looked(self, now: Instant) -> None:
        """What stands there was read."""
        self._looked = now.mono_ns

    def forget(self) -> None:
        """Begin anew, but for the distance between patches."""
        self._changed = self._written = self._looked = None

    def look(self, now: Instant) -> bool:
        """Whether to read what stands there before it is written."""
        return self._looked is None or now.mono_ns >= self._looked + self._refresh_ns

    def held(self, now: Instant) -> float:
        """Return the seconds until a patch keeps its distance from the one before, 0 if it does."""
        return max(self._free - now.mono_ns, 0) / NS

    def left(self, now: Instant) -> float | None:
        """Return the seconds until it is time to write, 0 if it is; None if nothing asks for it."""
        due = [] if self._changed is None else [self._changed + round(SETTLE * NS)]
        if self._written is not None:
            due.append(self._written + self._refresh_ns)
        if not due:
            return None
        return max(max(min(due), self._free) - now.mono_ns, 0) / NS
