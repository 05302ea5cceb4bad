"""Counters of points, and a log of the queue's failures."""

import re
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.delivery.contract import Totals
from pipeline.delivery.queue.error_reasons import reason_of, text_of
from pipeline.model import NS

_MAX_REASONS: Final = 32
_REASON: Final = re.compile(r"[\w.:-]{1,48}", re.ASCII)
_OTHER: Final = "other"
_MAX_NOTES: Final = 32
_MINUTE_NS: Final = 60 * NS


class PointCounters:
    """Counts points that left the queue: accepted, rejected or dropped.

    The number of reasons is limited, by the size of the cursor file; further reasons are `other`.
    """

    def __init__(self) -> None:
        self.acked = 0
        self.rejected: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.previous: Totals | None = None

    """The counts of earlier processes; None if they are not known yet."""

    def settle(self, points: int, acked: int, rejected: Mapping[str, int]) -> None:
        """Count points that the receiver accepted or rejected.

        Raises:
            ValueError: a count is negative, or the counts do not add up to `points`.
        """
        if acked < 0 or min(rejected.values(), default=0) < 0:
            raise ValueError("accepted and rejected points can't be negative")
        if acked + sum(rejected.values()) != points:
            raise ValueError(
                f"{points} points are settled, but accepted and rejected points differ"
            )
        self.acked += acked
        for reason, count in rejected.items():
            _count(self.rejected, reason, count)

    def drop(self, reason: str, points: int) -> None:
        """Count dropped points."""
        if points > 0:
            _count(self.dropped, reason, points)

    def add_previous(
        self, acked: int, rejected: Mapping[str, int], dropped: Mapping[str, int]
    ) -> None:
        """Add the counts of earlier processes. Call it once."""
        sent = acked + sum(rejected.values())
        self.settle(sent, acked, rejected)
        for reason, points in dropped.items():
            self.drop(reason, points)
        self.previous = Totals(sent + sum(dropped.values()), acked, rejected, dropped)

    def totals(self, queued: int) -> Totals:
        """Return all counts. `queued` is the number of points that wait."""
        rejected, dropped = self.rejected.copy(), self.dropped.copy()
        done = sum((self.acked, *rejected.values(), *dropped.values()))
        return Totals(done + queued, self.acked, rejected, dropped)


def _count(counts: dict[str, int], reason: str, points: int) -> None:
    known = reason in counts or (len(counts) < _MAX_REASONS and _REASON.fullmatch(reason))
    where = reason if known else _OTHER
    counts[where] = counts.get(where, 0) + points


class FaultLog:
    """Counts failures by operation and reason, and collects messages for users.

    Attributes:
        faults: number of failures by operation and reason.
        corrupt_points: number of lost points that `summarize_corruption` has not reported yet.
    """

    def __init__(self) -> None:
        self.faults: Counter[tuple[str, str]] = Counter()
        self.corrupt_points = 0
        self._notes: deque[str] = deque(maxlen=_MAX_NOTES)
        self._warnings: deque[str] = deque(maxlen=_MAX_NOTES)
        self._failing: dict[str, str] = {}
        self._summarized_ns: int | None = None

    def add_note(self, sentence: str) -> None:
        """Add a message for users. Only the last `_MAX_NOTES` messages are kept."""
        self._notes.append(sentence)

    def count_fault(self, operation: str, reason: str, sentence: str = "") -> None:
        """Count a failure; add a message for users, if there is one."""
        self.faults[operation, reason] += 1
        if sentence:
            self._notes.append(sentence)

    def record_failure(self, operation: str, cause: OSError, sentence: str) -> None:
        """Count a failure, and add a message if the failure is new.

        Args:
            operation: the operation that failed.
            cause: the error of the system.
            sentence: the message; `{}` in it is replaced by the system's error text.
        """
        text = text_of(cause)
        is_new = self._failing.get(operation) != text
        self._failing[operation] = text
        note = sentence.replace("{}", text) if is_new else ""
        self.count_fault(operation, reason_of(cause), note)

    def record_recovery(self, operation: str, sentence: str) -> None:
        """Add a message that an operation works again, if it failed before."""
        if self._failing.pop(operation, None) is not None:
            self._notes.append(sentence)

    def summarize_corruption(self, folder: Path, now_ns: int | None) -> None:
        """If points were lost, add a warning with their number, at most once a minute.

        Args:
            folder: the folder of the queue.
            now_ns: the monotonic clock; None to add the warning in any case.
        """
        last_ns = self._summarized_ns
        if not self.corrupt_points or (
            now_ns is not None and last_ns is not None and now_ns - last_ns < _MINUTE_NS
        ):
            return
        self._warnings.append(
            f"{self.corrupt_points} points in {folder} were corrupt or missing and are lost"
        )
        self.corrupt_points = 0
        self._summarized_ns = now_ns

    def take_messages(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the messages and the warnings about lost points, and clear both."""
        notes, warnings = tuple(self._notes), tuple(self._warnings)
        self._notes.clear()
        self._warnings.clear()
        return notes, warnings
