"""Processor time, memory and times of podgpu, of the floor and of other exporters."""

import json
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pynvml

from tests.fakes.nvml.build import header
from tests.gpu.daemon import Daemon, cpu_seconds, memory_mb

SCRAPE_EVERY = 15.0
SOURCE = Path(__file__).parents[1] / "bench/floor.c"


def build_floor(folder: Path) -> str:
    """Build `tests/bench/floor.c` with the driver's library of this machine; return its path."""
    pynvml.nvmlInit()
    maps = Path("/proc/self/maps").read_text().splitlines()
    library = next(line.split()[-1] for line in maps if "libnvidia-ml.so" in line)
    program = folder / "floor"
    words = ["gcc", "-O2", "-pthread", "-isystem", str(header().parent), "-o", str(program)]
    subprocess.run([*words, str(SOURCE), library], check=True, timeout=60)
    return str(program)


def floor_used(program: str, seconds: float) -> dict[str, Any]:
    """Run the floor, with a round each second."""
    done = subprocess.run(
        [program, str(seconds), "1000", "30000"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds + 30,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def process_used(pid: int, scrape: Callable[[], object], seconds: float) -> dict[str, Any]:
    """Measure an exporter for some seconds, with a scrape each 15 s."""
    times: list[float] = []
    cpu, start = cpu_seconds(pid), time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        if passed >= len(times) * SCRAPE_EVERY:
            began = time.perf_counter()
            scrape()
            times.append(1e3 * (time.perf_counter() - began))
        time.sleep(0.5)
    percent = 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - start)
    return {
        "cpu_percent": round(percent, 3),
        "memory_mb": memory_mb(pid),
        "scrapes": len(times),
        "scrape_ms": round(sum(times) / len(times), 2),
    }


def podgpu_used(daemon: Daemon, seconds: float) -> dict[str, Any]:
    """Start podgpu, and measure it after its first rounds."""
    with daemon:
        time.sleep(3)
        found = process_used(daemon.pid, daemon.page, seconds)
        return {**found, "round_ms": round(1e3 * mean_round(daemon.page()), 2)}


def floor_then_podgpu(daemon: Daemon, floor: str, seconds: float) -> dict[str, Any]:
    """Measure the floor and then podgpu."""
    bare, ours = floor_used(floor, seconds), podgpu_used(daemon, seconds)
    return {
        "floor_cpu_percent": bare["cpu_percent"],
        "floor_round_ms": bare["round_ms"],
        "floor_max_rss_mb": bare["max_rss_mb"],
        "podgpu_cpu_percent": ours["cpu_percent"],
        "ratio": round(ours["cpu_percent"] / bare["cpu_percent"], 3),
        **{name: ours[name] for name in ("memory_mb", "round_ms", "scrape_ms", "scrapes")},
    }


def mean_round(page: str) -> float:
    """Return the mean seconds of a round of readings, from the page."""

    def value(suffix: str) -> float:
        name = f"podgpu_sample_duration_seconds_{suffix}"
        line = next(line for line in page.splitlines() if line.startswith(name))
        return float(line.rpartition(" ")[2])

    return value("sum") / value("count")


def page_of(port: int) -> bytes:
    """Return the metrics page of another exporter."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    finally:
        connection.close()
