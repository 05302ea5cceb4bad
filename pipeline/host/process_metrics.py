"""Metrics of podgpu's own process, read from the kernel."""

import os
import resource
from pathlib import Path

from pipeline.base.telemetry import Point
from pipeline.model import NS, Instant


def process_points(started: Instant) -> dict[str, list[Point]]:
    """Return CPU time, memory, start time and number of open files of this process, by family.

    A family that the kernel does not provide is missing.

    Args:
        started: time that is returned as the start of the process.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    points = {
        "process_cpu_seconds_total": [Point((), usage.ru_utime + usage.ru_stime)],
        "process_start_time_seconds": [Point((), started.wall_ns / NS)],
    }
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        points["process_resident_memory_bytes"] = [Point((), pages * os.sysconf("SC_PAGE_SIZE"))]
        points["process_open_fds"] = [Point((), sum(1 for _ in os.scandir("/proc/self/fd")))]
    except OSError:
        pass
    return points
