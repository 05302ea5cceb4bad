"""What became of points, and what went wrong meanwhile."""

import re
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pipeline.delivery.contract import Totals
from pipeline.delivery.queue.error_reasons import reason_of, text_of
from pipeline.model import NS

_MOST_REASONS: Final = 32
_REASON: Final = re.compile(r"[\w.:-]{1,48}", re.ASCII)
_OTHER: Final = "other"
_MOST_NOTES: Final = 32
_MINUTE_NS: Final = 60 * NS


class PointCounters:
    """Points that are done with: taken by the receiver, refused by it, or given up.

    As many reasons are told apart as there is room for in a file; the rest is `other`.
    """

    def __init__(self) -> None:
        self.acked = 0
        self.rejected: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self._done = 0
        self.previous = Totals()
        """What of it earlier processes have counted."""

    def settle(self, points: int, acked: int, rejected: Mapping[str, int]) -> None:
        """Count points that the receiver has decided on.

        Raises:
            ValueError: it didn't decide on exactly these.
        """
        if acked < 0 or min(rejected.values(), default=0) < 0:
            raise ValueError("a receiver takes or refuses no fewer than 0 points")
        if acked + sum(rejected.values()) != points:
            raise ValueError(f"{points} points are settled, but not so many taken and refused")
        self.acked += acked
        self._done += points
        for reason, count in rejected.items():
            _count(self.rejected, reason, count)

    def drop(self, reason: str, points: int) -> None:
        """Count points that are given up."""
        if points > 0:
            self._done += points
            _count(self.dropped, reason, points)

    def add_previous(
        self, acked: int, rejected: Mapping[str, int], dropped: Mapping[str, int]
    ) -> None:
        """Count what earlier processes have counted. Once."""
        self.settle(acked + sum(rejected.values()), acked, rejected)
        for reason, points in dropped.items():
            self.drop(reason, points)
        self.previous = Totals(
            appended=acked + sum(rejected.values()) + sum(dropped.values()),
            acked=acked,
            rejected=MappingProxyType(dict(rejected)),
            dropped=MappingProxyType(dict(dropped)),
        )

    def totals(self, queued: int) -> Totals:
        """Return all of it, with the points that wait."""
        return Totals(
            appended=self._done + queued,
            acked=self.acked,
            rejected=MappingProxyType(self.rejected.copy()),
            dropped=MappingProxyType(self.dropped.copy()),
        )


def _count(counts: dict[str, int], reason: str, points: int) -> None:
    known = reason in counts or (len(counts) < _MOST_REASONS and _REASON.fullmatch(reason))
    where = reason if known else _OTHER
    counts[where] = counts.get(where, 0) + points


class FaultLog:
    """Faults by operation and reason, and sentences for people, each change told once."""

    def __init__(self) -> None:
        self._faults: Counter[tuple[str, str]] = Counter()
        self._notes: deque[str] = deque(maxlen=_MOST_NOTES)
        self._warnings: deque[str] = deque(maxlen=_MOST_NOTES)
        self._failing: dict[str, str] = {}
        self._broken: Counter[Path] = Counter()
        self._summed_ns: int | None = None

    @property
    def faults(self) -> Mapping[tuple[str, str], int]:
        """How often what failed, since the start."""
        return MappingProxyType(dict(self._faults))

    def add_note(self, sentence: str) -> None:
        """Tell people something."""
        self._notes.append(sentence)

    def count_fault(self, operation: str, reason: str) -> None:
        """Count a fault that needs no sentence, or has one of its own."""
        self._faults[operation, reason] += 1

    def record_failure(self, operation: str, cause: OSError, sentence: str) -> None:
        """Count a fault, and tell it if it is news.

        Args:
            operation: what was tried.
            cause: what the system said.
            sentence: what to tell; `{}` in it becomes the system's text.
        """
        self._faults[operation, reason_of(cause)] += 1
        self.note_failure(operation, text_of(cause), sentence)

    def note_failure(self, operation: str, text: str, sentence: str) -> None:
        """Tell that something fails, if that is news; it has been counted elsewhere."""
        if self._failing.get(operation) != text:
            self._failing[operation] = text
            self._notes.append(sentence.replace("{}", text))

    def record_recovery(self, operation: str, sentence: str) -> None:
        """Tell that something works again, if it didn't."""
        if self._failing.pop(operation, None) is not None:
            self._notes.append(sentence)

    def add_corrupt_points(self, folder: Path, points: int) -> None:
        """Add broken points in a folder; `summarize_corruption` logs their sum."""
        self._broken[folder] += points

    def summarize_corruption(self, now_ns: int | None) -> None:
        """Tell how many points are broken, once a minute at most.

        Args:
            now_ns: the monotonic clock; None for the last time.
        """
        last_ns = self._summed_ns
        if not self._broken or (
            now_ns is not None and last_ns is not None and now_ns - last_ns < _MINUTE_NS
        ):
            return
        for folder, points in self._broken.items():
            self._warnings.append(
                f"{points} points in {folder} were broken or are missing, and are lost"
            )
        self._broken.clear()
        self._summed_ns = now_ns

    def take_warnings(self) -> tuple[str, ...]:
        """Return what there is to tell of losses, once."""
        warnings = tuple(self._warnings)
        self._warnings.clear()
        return warnings

    def take_notes(self) -> tuple[str, ...]:
        """Return what there is to tell, once."""
        notes = tuple(self._notes)
        self._notes.clear()
        return notes
