"""Read energy and process utilisation of one GPU with pynvml, independently of podgpu.

    python3 -m tests.gpu.nvml_meter GPU

Prints lines of JSON until it is stopped: `[time, millijoules]` twenty times a second, and `[time,
{pid: busy seconds since the start}]` each five seconds, with times of the monotonic clock.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pynvml

EVERY = 0.05
UTILISATION_EVERY = 5.0
"""With shorter intervals, some calls return nothing new and utilisation is lost."""


def main() -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(sys.argv[1]))
    busy: dict[int, float] = defaultdict(float)
    since = int(time.time() * 1e6)
    due = time.monotonic() + UTILISATION_EVERY
    while True:
        energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        print(json.dumps([time.monotonic(), energy]), flush=True)
        if time.monotonic() >= due:
            due += UTILISATION_EVERY
            since = poll(handle, since, busy)
            print(json.dumps([time.monotonic(), busy]), flush=True)
        time.sleep(EVERY)


def poll(handle: object, since: int, busy: dict[int, float]) -> int:
    """Add the busy time of processes since a timestamp; return the newest timestamp."""
    try:
        entries = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError_NotFound:
        return since
    fresh = [entry for entry in entries if entry.timeStamp > since]
    for entry in fresh:
        busy[entry.pid] += entry.smUtil / 100 * (entry.timeStamp - since) / 1e6
    return max([since, *(int(entry.timeStamp) for entry in fresh)])


class Meter:
    """The output of this script.

    Args:
        file: file with the output.
    """

    def __init__(self, file: Path) -> None:
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("]")]
        self._energy = [(at, value) for at, value in lines if not isinstance(value, dict)]
        self._busy = [(at, value) for at, value in lines if isinstance(value, dict)]

    def joules(self, begin: float, end: float) -> float:
        """Return the energy between two times in joules."""
        return (self._at(end) - self._at(begin)) / 1000

    def _at(self, moment: float) -> float:
        for (start, before), (after, then) in pairwise(self._energy):
            if start <= moment <= after:
                return float(before + (then - before) * (moment - start) / (after - start))
        raise ValueError(f"no reading at {moment}")

    def busy(self, begin: float, end: float) -> dict[int, float]:
        """Return the busy seconds of each process between two times, from the nearest polls."""
        first, last = (
            min(self._busy, key=lambda one: abs(one[0] - moment)) for moment in (begin, end)
        )
        passed = last[0] - first[0] or 1.0
        part = (end - begin) / passed
        return {int(pid): (total - first[1].get(pid, 0.0)) * part for pid, total in last[1].items()}


@contextmanager
def metering(out: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """Run a second reader of NVML in another process."""
    file = out / "meter.txt"
    with file.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.nvml_meter", "0"],
            stdout=output,
            env={**os.environ, **env},
        )
        try:
            yield file
        finally:
            process.terminate()
            process.wait(10)


if __name__ == "__main__":
    main()
