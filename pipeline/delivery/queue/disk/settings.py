"""Fixed settings of a store, and the error for a folder with records of another kind."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.delivery.queue.counters import FaultLog, PointCounters
from pipeline.delivery.queue.disk.in_flight import InFlightRecords
from pipeline.delivery.queue.disk.retry_budget import RetryBudget
from pipeline.model import Instant


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of a store.

    Attributes:
        path: the folder.
        max_size: maximum bytes of all segments.
        kind: kind of the records.
        flushes: whether files are flushed to the disk.
        now: the clocks.
        counters: counts points.
        fault_log: collects failures.
        in_flight: the records in flight.
        retry_budget: how long reading a failing disk is retried.
    """

    path: Path
    max_size: int
    kind: str
    flushes: bool
    now: Callable[[], Instant]
    counters: PointCounters
    fault_log: FaultLog
    in_flight: InFlightRecords
    retry_budget: RetryBudget


class KindError(OSError):
    """The folder holds records of another kind.

    Attributes:
        found: the kind of these records.
    """

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(errno.EEXIST, f"holds records of the kind {found}", str(path))
        self.found = found
