"""Schedule of reading and writing the annotation."""

from typing import Final

from pipeline.model import NS, Instant

SETTLE: Final = 1.0
"""Seconds from a change to its write, so that related changes are written together."""


class WriteSchedule:
    """Decides when to read and when to write the annotation.

    A write is due soon after a change, and `refresh` after the last write, but at most once per
    `min_interval`. A patch without a response may still be applied minutes later. So the annotation
    is read after `min_interval`, then each time after twice as long, up to `refresh`.

    Args:
        min_interval: minimum seconds between two patches.
        refresh: seconds after which the annotation is written again, changed or not.
        last: when the last patch was sent; None if unknown.
    """

    def __init__(self, min_interval: float, refresh: float, last: Instant | None = None) -> None:
        self._interval_ns = round(min_interval * NS)
        self._refresh_ns = round(refresh * NS)
        self._changed_ns: int | None = None
        self._written_ns: int | None = None
        self._read_ns: int | None = None
        self._check_delay_ns = 0
        self._check_at_ns: int | None = None
        self._allowed_ns = 0
        if last is not None:
            self.record_patch(last)

    @property
    def pending(self) -> bool:
        """Whether a change is not written yet."""
        return self._changed_ns is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether a patch without a response may still be applied."""
        return self._check_at_ns is not None

    def change(self, now: Instant) -> None:
        """Record that the content differs from what was written.

        Of several calls before a write, the time of the first one counts.
        """
        if self._changed_ns is None:
            self._changed_ns = now.mono_ns

    def cancel_change(self) -> None:
        """Record that the content equals what was written."""
        self._changed_ns = None

    def record_patch(self, now: Instant) -> None:
        """Record that a patch was sent. The next patch waits for `min_interval`."""
        self._allowed_ns = now.mono_ns + self._interval_ns

    def record_unanswered(self, now: Instant) -> None:
        """Record that a patch got no response and may still be applied."""
        self.record_patch(now)
        self._check_delay_ns = self._interval_ns
        self._check_at_ns = now.mono_ns + self._check_delay_ns

    def record_write(self, now: Instant, *, keep_refreshing: bool = True) -> None:
        """Record that the content was written. It is refreshed only if `keep_refreshing`."""
        self._written_ns, self._changed_ns = now.mono_ns if keep_refreshing else None, None

    def record_read(self, now: Instant) -> None:
        """Record that the annotation was read.

        If a check after an unanswered patch was due, the next one waits twice as long.
        """
        self._read_ns = now.mono_ns
        if self._check_at_ns is not None and now.mono_ns >= self._check_at_ns:
            self._check_delay_ns *= 2
            is_over = self._check_delay_ns >= self._refresh_ns
            self._check_at_ns = None if is_over else now.mono_ns + self._check_delay_ns

    def reset(self) -> None:
        """Forget everything except the time of the last patch."""
        self._changed_ns = self._written_ns = self._read_ns = self._check_at_ns = None

    def should_read(self, now: Instant) -> bool:
        """Whether a read is due.

        It is due if there was none within `refresh`, or for the check after an unanswered patch.
        """
        if self._read_ns is None or now.mono_ns >= self._read_ns + self._refresh_ns:
            return True
        return self._check_at_ns is not None and now.mono_ns >= self._check_at_ns

    def should_write(self, now: Instant) -> bool:
        """Whether a write is due."""
        due = self._due()
        return due is not None and now.mono_ns >= due

    def seconds_until_allowed(self, now: Instant) -> float:
        """Return the seconds until `min_interval` allows a patch; 0 if it allows one now."""
        return max(self._allowed_ns - now.mono_ns, 0) / NS

    def seconds_left(self, now: Instant) -> float | None:
        """Return the seconds until a write or a check after an unanswered patch is due.

        None if neither is planned.
        """
        times = [time for time in (self._due(), self._check_at_ns) if time is not None]
        return max(min(times) - now.mono_ns, 0) / NS if times else None

    def _due(self) -> int | None:
        due = [] if self._changed_ns is None else [self._changed_ns + round(SETTLE * NS)]
        if self._written_ns is not None:
            due.append(self._written_ns + self._refresh_ns)
        return max(min(due), self._allowed_ns) if due else None
