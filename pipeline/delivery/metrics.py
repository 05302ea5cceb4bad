"""Delivery in podgpu's own metrics.

All counts come from one state of the queue, so that the metrics are consistent at every scrape:
produced + recovered = emitted + rejected + dropped + queued.
"""

import logging
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from pipeline.base.clock import Clock
from pipeline.base.telemetry import Family
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.delivery.contract import SHUTDOWN, QueueState, Totals
from pipeline.model import NS

PARTIAL: Final = "partial"
"""Reason of rejections: the receiver refused these points and accepted others of the message."""

TOO_LARGE: Final = "too_large"
"""Reason of rejections: one record alone is larger than a message may be."""

MISSING: Final = "missing"
"""Reason of drops: points were on disk when the sink last stopped, and are no longer there."""

K = TypeVar("K")

FAMILIES: Final = (
    Family(
        "podgpu_sink_produced_total", "Points that a sink with a queue has produced from snapshots."
    ),
    Family(
        "podgpu_sink_produced_bytes_per_second",
        "Bytes per second that a sink with a queue produced in the last minute; no sample in the "
        "first minute.",
    ),
    Family(
        "podgpu_sink_recovered_total",
        "Points of an earlier run that waited in the sink's queue when it was opened.",
    ),
    Family(
        "podgpu_sink_rejected_total",
        "Points that the receiver refused permanently, by reason.",
        timestamped=True,
    ),
    Family("podgpu_sink_queued", "Points that wait in the sink's queue."),
    Family("podgpu_sink_queue_bytes", "Size of the sink's queue."),
    Family(
        "podgpu_sink_queue_writable",
        "1 while the queue's disk can be written, 0 while data is kept in memory instead.",
    ),
    Family(
        "podgpu_sink_oldest_age_seconds",
        "Age of the oldest data in the sink's queue; 0 while it is empty.",
    ),
    Family(
        "podgpu_sink_delivering",
        "1 while the receiver accepts what the sink sends, 0 while it does not; no sample before "
        "the first message.",
    ),
    Family("podgpu_sink_retries_total", "Messages that had to be sent again, by reason."),
)
"""podgpu's own metrics of sinks that send to a receiver."""

_PRODUCED: Final = "podgpu_sink_produced_total"
_RECOVERED: Final = "podgpu_sink_recovered_total"
_EMITTED: Final = "podgpu_sink_emitted_total"
_REJECTED: Final = "podgpu_sink_rejected_total"
_DROPPED: Final = "podgpu_sink_dropped_total"
_QUEUED: Final = "podgpu_sink_queued"
_AGE: Final = "podgpu_sink_oldest_age_seconds"


_folders: Final[WeakKeyDictionary[Clock, dict[str, Path | None]]] = WeakKeyDictionary()
"""The queue folder that each sink used last; None for a queue in memory.

The key is the clock, which all sinks of one podgpu share and which outlives a reload.
"""


class DeliveryMetrics:
    """Reports delivery of one sink in podgpu's own metrics.

    Args:
        ctx: metrics and logger of the sink.
    """

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._last: QueueState | None = None
        self._counted = Totals()
        self._recovered = self._left_behind_points = 0

    @property
    def queued(self) -> int:
        """Number of waiting points in the last state."""
        return self._last.totals.queued if self._last else 0

    def on_opened(self, state: QueueState, path: Path | None) -> None:
        """Start to count for a queue that was just opened.

        Points that this sink left in the queue earlier in the same process, as before a reload, are
        already counted as produced. They do not count as recovered.

        Args:
            state: state of the queue.
            path: folder of the queue; None if it has none.
        """
        meter = self._ctx.meter
        for family in (_PRODUCED, _RECOVERED, _EMITTED):
            meter.add(family, 0)
        meter.add(_DROPPED, 0, reason=SHUTDOWN)
        for reason in (PARTIAL, TOO_LARGE):
            meter.add(_REJECTED, 0, reason=reason)
        self._counted, self._recovered, self._left_behind_points = (
            Totals(),
            0,
            self._queued_before(),
        )
        self._discard_old_folder(path)
        self._last = None
        self.update(state)

    def _queued_before(self) -> int:
        """Return how many points waited in this sink's queue when they were last reported."""
        own = ("sink", self._ctx.name)
        return round(
            sum(
                point.value
                for family, points in self._ctx.telemetry()
                if family.name == _QUEUED
                for point in points
                if own in point.labels
            )
        )

    def _discard_old_folder(self, path: Path | None) -> None:
        """If the sink now uses another folder, count the points in its former one as missing."""
        folders = _folders.setdefault(self._ctx.clock, {})
        folder = None if path is None else Path(os.path.normpath(path))
        before = folders.get(self._ctx.name, folder)
        folders[self._ctx.name] = folder
        if before == folder or not self._left_behind_points:
            return
        self._ctx.meter.add(_DROPPED, self._left_behind_points, reason=MISSING)
        if before is not None:
            warn(
                self._ctx,
                "%d points remain in %s, the previous queue of this sink, and count as dropped "
                "(missing); they are sent once a sink uses that queue.path again",
                self._left_behind_points,
                before,
            )
        self._left_behind_points = 0

    def update(self, state: QueueState) -> None:
        """Report what changed since the last state."""
        meter = self._ctx.meter
        self._count_recovered(state)
        now, before = self._own_totals(state), self._counted
        meter.add(_PRODUCED, now.appended - before.appended)
        meter.add(_EMITTED, now.acked - before.acked)
        for reason, points in _added(now.rejected, before.rejected).items():
            meter.add(_REJECTED, points, reason=reason)
        dropped = _added(now.dropped, before.dropped)
        for reason, points in dropped.items():
            meter.add(_DROPPED, points, reason=reason)
        for warning in state.warnings:
            # Always a warning: it says why points are lost.
            self._ctx.log.warning("%s", warning)
            meter.set_problem(warning, self._ctx.clock.now())
        faults = _added(state.faults, self._last.faults if self._last else {})
        for (operation, reason), times in faults.items():
            meter.add("podgpu_sink_errors_total", times, operation=operation, reason=reason)
            problem = state.notes[-1] if state.notes else f"queue: {operation} fails: {reason}"
            meter.set_problem(problem, self._ctx.clock.now())
        meter.set(_QUEUED, state.totals.queued + self._left_behind_points)
        meter.set("podgpu_sink_queue_bytes", state.bytes)
        meter.set("podgpu_sink_queue_writable", int(state.writable))
        lost = self._last is None and state.recovered > state.totals.queued
        level = logging.WARNING if faults or dropped or lost else logging.INFO
        for note in state.notes:
            self._ctx.log.log(level, "%s", note)
        self._counted, self._last = now, state
        self.update_age()

    def _own_totals(self, state: QueueState) -> Totals:
        """Return the counts of this process, without those of earlier processes."""
        totals, earlier = state.totals, state.previous
        return Totals(
            totals.appended - earlier.appended - state.recovered,
            totals.acked - earlier.acked,
            _added(totals.rejected, earlier.rejected),
            _added(totals.dropped, earlier.dropped),
        )

    def _count_recovered(self, state: QueueState) -> None:
        """Count the points that were found in the queue, except those that this process left there.

        While the folder can't be opened, nothing is compared: it may still hold these points.
        """
        found = state.recovered - self._recovered
        if found or state.writable:
            self._ctx.meter.add(_RECOVERED, max(found - self._left_behind_points, 0))
            if found < self._left_behind_points:
                self._ctx.meter.add(_DROPPED, self._left_behind_points - found, reason=MISSING)
            self._recovered += found
            self._left_behind_points = 0

    def update_age(self) -> None:
        """Report how old the oldest data is now."""
        oldest_ns = self._last.oldest_ns if self._last else None
        if oldest_ns is None:
            self._ctx.meter.set(_AGE, 0)
        else:
            # The wall clock may have been set back.
            age_ns = max(0, self._ctx.clock.now().wall_ns - oldest_ns)
            self._ctx.meter.set(_AGE, age_ns / NS)

    def count_lost(self, points: int) -> None:
        """Count points as dropped that may be in the queue or not, because its disk hangs."""
        self._ctx.meter.add(_PRODUCED, points)
        self._ctx.meter.add(_DROPPED, points, reason=SHUTDOWN)

    def on_closed(self) -> None:
        """Log how many points were lost with the memory of a closed queue."""
        if lost := self._counted.dropped.get(SHUTDOWN, 0):
            warn(
                self._ctx,
                "%d points in memory are lost at shutdown; set queue.path to a folder that can be "
                "written to keep them for the next start",
                lost,
            )


def _added(now: Mapping[K, int], before: Mapping[K, int]) -> Counter[K]:
    """Return by how much each count has risen, without those that have not."""
    return Counter(now) - Counter(before)
