"""What podgpu itself uses, read from the kernel."""

import os
import resource
from pathlib import Path

from pipeline.telemetry import Point


def process_points(started_wall_ns: int) -> dict[str, list[Point]]:
    """Return processor time, memory, start time and open files of this process, by family.

    A figure that the kernel doesn't give has no point.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    points = {
        "process_cpu_seconds_total": [Point((), usage.ru_utime + usage.ru_stime)],
        "process_start_time_seconds": [Point((), started_wall_ns / 1e9)],
    }
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        points["process_resident_memory_bytes"] = [Point((), pages * os.sysconf("SC_PAGE_SIZE"))]
        points["process_open_fds"] = [Point((), sum(1 for _ in Path("/proc/self/fd").iterdir()))]
    except OSError:
        pass
    return points
