"""Metrics of podgpu's own process, read from the kernel."""

import os
import resource
from pathlib import Path
from typing import Final

from pipeline.base.clock import Clock
from pipeline.base.telemetry import Point
from pipeline.model import NS, Instant

_INTERVAL: Final = 1.0
"""Minimum of seconds between two readings: listing many descriptors is slower than a scrape."""


class ProcessFigures:
    """Reads the metrics of this process, at most once a second.

    Args:
        clock: the clock; its present time is taken as the start of the process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._read_at: Instant | None = None
        self._points: dict[str, list[Point]] = {}

    def points(self) -> dict[str, list[Point]]:
        """Return CPU time, memory, start time and open files of this process, by family.

        A metric that the kernel does not provide has no sample.
        """
        now = self._clock.now()
        if self._read_at is None or self._read_at.seconds_until(now) >= _INTERVAL:
            self._read_at, self._points = now, _points(self._started.wall_ns)
        return self._points


def _points(started_wall_ns: int) -> dict[str, list[Point]]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    points = {
        "process_cpu_seconds_total": [Point((), usage.ru_utime + usage.ru_stime)],
        "process_start_time_seconds": [Point((), started_wall_ns / NS)],
    }
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        points["process_resident_memory_bytes"] = [Point((), pages * os.sysconf("SC_PAGE_SIZE"))]
        points["process_open_fds"] = [Point((), len(list(Path("/proc/self/fd").iterdir())))]
    except OSError:
        pass
    return points
