"""What a store is told once, and how it says that a folder isn't for it."""

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
    """What a store is told once.

    Attributes:
        path: its folder.
        max_size: bytes that all segments together have at most.
        kind: a word for what the records are.
        flushes: whether it flushes to the disk.
        now: the clocks.
        counters: of all points that are done with.
        fault_log: what goes wrong.
        in_flight: what is in flight.
        retry_budget: with a disk that can't be read.
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
    """Records of another kind are in the folder.

    Attributes:
        found: the word for what they are.
    """

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(errno.EEXIST, f"holds records of {found}", str(path))
        self.found = found
