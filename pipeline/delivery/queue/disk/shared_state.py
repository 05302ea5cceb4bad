"""What the parts of a queue on disk share: settings, counters, and the records in flight."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.counters import FaultLog, PointCounters
from pipeline.model import NS, Instant

_MIN_WAIT_NS: Final = 60 * NS
_MAX_WAIT_NS: Final = 600 * NS
_MIN_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """A position between two records.

    Attributes:
        segment: number of the segment.
        offset: byte offset in the segment.
        position: number of points before the next record, over all segments.
        record: number of the next record.
    """

    segment: int
    offset: int
    position: int
    record: int


@dataclass(slots=True)
class InFlightRecord:
    """A record in flight.

    Attributes:
        position: where the record is on disk.
        points: number of points in the record.
        created_ns: when the record was made, by the wall clock.
        lost_reason: why the segment of the record was removed; empty if it was not removed.
    """

    position: ReadPosition
    points: int
    created_ns: int
    lost_reason: str = ""


class InFlightRecords(deque[InFlightRecord]):
    """The records in flight, oldest first. Records whose segments were removed come first."""

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest record was made."""
        return self[0].created_ns if self else None

    @property
    def position(self) -> ReadPosition | None:
        """Position of the oldest record that is still on disk."""
        return next((record.position for record in self if not record.lost_reason), None)

    @property
    def lost_points(self) -> Counter[str]:
        """Number of points in records that are no longer on disk, by reason."""
        found: Counter[str] = Counter()
        for record in self:
            if not record.lost_reason:
                break
            found[record.lost_reason] += record.points
        return found

    def mark_lost(self, segment: int | None, reason: str) -> None:
        """Note that a segment was removed, or all segments if `segment` is None.

        A record behind one that is still on disk is not marked. If both are put back, the reader
        detects and counts the missing points when it reaches them.
        """
        for record in self:
            if not record.lost_reason:
                if segment is not None and record.position.segment != segment:
                    break
                record.lost_reason = reason


class RetryBudget:
    """Decides how long reading a failing disk is retried: at least a minute and ten tries.

    A cable, a controller or a network may be away for a while, and the data on disk be intact. Only
    tries at least a second apart count: nothing is read while the receiver accepts nothing.

    Args:
        now: returns the present time.
    """

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._since_ns: int | None = None
        self._last_ns = 0
        self._tries = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last try failed."""
        return self._since_ns is not None

    @property
    def is_exhausted(self) -> bool:
        """Whether to give up data that can't be read, if other data can be read."""
        return self._tries >= _MIN_TRIES and self._waited_ns() >= _MIN_WAIT_NS

    @property
    def is_hopeless(self) -> bool:
        """Whether to give up all data, although none of it can be read."""
        return self.is_exhausted and self._waited_ns() >= _MAX_WAIT_NS

    def _waited_ns(self) -> int:
        return 0 if self._since_ns is None else self._now().mono_ns - self._since_ns

    def record_failure(self) -> None:
        """Note that a try failed."""
        now_ns = self._now().mono_ns
        if self._since_ns is None:
            self._since_ns, self._tries = now_ns, 0
        if not self._tries or now_ns - self._last_ns >= NS:
            self._last_ns = now_ns
            self._tries += 1

    def record_success(self) -> None:
        """Reset the budget: the data was read, or was given up."""
        self._since_ns = None


@dataclass(slots=True)
class DiskShared:
    """Settings of a queue on disk, and state that is kept when its folder is opened again.

    Attributes:
        path: the folder, which only this queue may use.
        max_size: maximum bytes of all segments.
        kind: kind of the records.
        fsync_ns: interval of flushes in nanoseconds; 0 for never.
        now: returns the present time.
        counters: counters of points.
        fault_log: log of failures.
        in_flight: the records in flight.
        retry_budget: decides how long reading a failing disk is retried.
    """

    path: Path
    max_size: int
    kind: str
    fsync_ns: int
    now: Callable[[], Instant]
    counters: PointCounters = field(default_factory=PointCounters)
    fault_log: FaultLog = field(default_factory=FaultLog)
    in_flight: InFlightRecords = field(default_factory=InFlightRecords)
    retry_budget: RetryBudget = field(init=False)

    def __post_init__(self) -> None:
        self.retry_budget = RetryBudget(self.now)
