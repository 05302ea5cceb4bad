"""What podgpu itself uses, read from the kernel."""

import os
import resource
from pathlib import Path
from typing import Final

from pipeline.base.clock import Clock
from pipeline.base.telemetry import Point
from pipeline.model import NS, Instant

_EVERY: Final = 1.0
"""Seconds between two looks: to list hundreds of descriptors takes longer than to render a page."""


class ProcessFigures:
    """Looks at this process, once a second at most.

    Args:
        clock: the process's; it was started now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._looked: Instant | None = None
        self._points: dict[str, list[Point]] = {}

    def points(self) -> dict[str, list[Point]]:
        """Return processor time, memory, start time and open files of this process, by family.

        A figure that the kernel doesn't give has no point.
        """
        now = self._clock.now()
        if self._looked is None or self._looked.seconds_until(now) >= _EVERY:
            self._looked, self._points = now, _points(self._started.wall_ns)
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
