"""Holds what podgpu sees of who uses a GPU against processes of known work.

    python3 -m tests.gpu.usage [--out FILE] [--seconds 60] [--gpu 0] [--every 5]

For each scene, processes work for a given part of the time on one GPU while the nvml source looks.
What each really did is the number of passes over an array that it finished, times what one takes
when nobody else is there. Beside that a second reading, by pynvml alone and in a process of its
own. Prints one line of JSON for each scene; the status is 1 if something is further from the truth
than it may be. Needs torch, and the GPU for itself.
"""

import argparse
import asyncio
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pynvml

from config.value_types import Duration
from pipeline.model import NS, DeviceUse, ProcessesSampled
from sources.nvml.options import Options
from sources.nvml.source import NvmlSource
from tests.gpu.nvml_meter import poll
from tests.support.contexts import FakeSourceContext

BATCH = 32
"""Passes between two looks at the clock: some milliseconds."""
POINTS = 4.0
"""Percent of the GPU's time that a process' part may be off, where the load doesn't saturate it."""
SUM_POINTS = 2.5
"""The same of all processes together: what switching between them takes is busy time too."""
ENERGY_PERCENT = 1.0

# Duties, and whether they are held to the truth: of loads that saturate the GPU the driver's own
# figures are biased.
SCENES: tuple[tuple[Sequence[float], bool], ...] = (
    ((0.3,), True),
    ((0.3, 0.6), True),
    ((0.2, 0.2, 0.2), True),
    ((0.1, 0.8), True),
    ((1.0, 1.0), False),
)


def work(gpu: int, duty: float, seed: int) -> None:
    """Pass over an array in bursts of uneven length until killed; tell how many passes and when.

    The lengths are drawn anew each time: a load in step with the driver's samples is seen wrongly.
    """
    import torch

    torch.cuda.set_device(gpu)
    # Little power: under a load that meets the power limit the clocks fall, and what a pass takes
    # alone and without a break would be no measure of what it takes in a burst.
    array = torch.rand(1 << 26, device="cuda")
    drawn = random.Random(seed)
    done, printed = 0, 0.0
    while True:
        begun = time.monotonic()
        length = drawn.uniform(0.02, 0.18)
        while (passed := time.monotonic() - begun) < length:
            for _ in range(BATCH):
                array.sin_()
            torch.cuda.synchronize()
            done += BATCH
            if time.monotonic() - printed > 0.02:
                printed = time.monotonic()
                print(printed, done, flush=True)
        time.sleep(passed * (1 - duty) / duty)


def second(gpu: int, seconds: float) -> None:
    """Print what NVML says once a second of processes and energy, in JSON: totals and times."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    busy: dict[int, float] = defaultdict(float)
    since = int(time.time() * 1e6)
    begun, energy = time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    while time.monotonic() < begun + seconds:
        time.sleep(1)
        since = poll(handle, since, busy)
    grown = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - energy
    passed = time.monotonic() - begun
    shares = {pid: seconds / passed for pid, seconds in busy.items()}
    print(json.dumps({"shares": shares, "watts": grown / 1000 / passed}))


class Worker:
    """A process of known work, and what it told."""

    def __init__(self, gpu: int, duty: float, seed: int) -> None:
        self.duty = duty
        # Not a pipe: nobody reads before the end, and a full one would hold it up.
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by end()
        words = ("--work", str(duty), str(seed), "--gpu", str(gpu))
        command = [sys.executable, "-m", "tests.gpu.usage", *words]
        self._process = subprocess.Popen(command, stdout=self._output)
        self.pid = self._process.pid

    def begun(self) -> bool:
        """Whether it has told something; the first use of CUDA takes seconds.

        Raises:
            RuntimeError: it has ended.
        """
        if self._process.poll() is not None:
            raise RuntimeError("a worker ended before its time: see above what it said")
        return os.fstat(self._output.fileno()).st_size > 0

    def end(self) -> list[tuple[float, int]]:
        """End it; return moments and how many passes were finished by then."""
        self._process.kill()
        self._process.wait(20)
        self._output.seek(0)
        pairs = [line.split() for line in self._output.read().splitlines()]
        self._output.close()
        # It may have been killed in the middle of the last line.
        return [(float(moment), int(done)) for moment, done in pairs[:-1]]


def started(workers: Sequence[Worker], within: float = 120) -> None:
    """Wait until all workers work."""
    end = time.monotonic() + within
    while not all(worker.begun() for worker in workers):
        if time.monotonic() > end:
            raise RuntimeError(f"not all workers work after {within:g} s")
        time.sleep(0.1)
    time.sleep(1)


def finished(progress: Sequence[tuple[float, int]], begin: float, end: float) -> float:
    """Return how many passes were finished between two moments."""

    def by(moment: float) -> float:
        before = max((one for one in progress if one[0] <= moment), default=progress[0])
        after = min((one for one in progress if one[0] > moment), default=progress[-1])
        if after[0] <= before[0]:
            return before[1]
        part = (moment - before[0]) / (after[0] - before[0])
        return before[1] + min(1.0, max(0.0, part)) * (after[1] - before[1])

    return by(end) - by(begin)


def solo(gpu: int) -> float:
    """Return the seconds that one pass takes when nobody else is on the GPU."""
    worker = Worker(gpu, 1.0, 0)
    started([worker])
    time.sleep(5)
    progress = worker.end()
    end = progress[-1][0]
    return 4 / finished(progress, end - 4, end)


async def looks(gpu: int, seconds: float, every: float) -> list[DeviceUse]:
    """Let the source look for some time; return what it told of the GPU."""
    ctx = FakeSourceContext()
    # Another name of the same place: whoever runs this knows whose processes it shows.
    options = Options(
        devices=f"g:{gpu}", usage_interval=Duration(every), proc=Path("/proc/self/root/proc")
    )
    task = asyncio.create_task(NvmlSource(options).run(ctx))
    try:
        await asyncio.wait([task], timeout=seconds + 1)
        if task.done():
            task.result()  # it failed
    finally:
        task.cancel()
        await asyncio.wait([task])
    uses = (
        use for event in ctx.events if isinstance(event, ProcessesSampled) for use in event.uses
    )
    return list(uses)


def scene(gpu: int, duties: Sequence[float], seconds: float, every: float, alone: float) -> Any:
    """Run one scene; return its figures, shares in percent of the time from first to last look."""
    workers = [Worker(gpu, duty, seed) for seed, duty in enumerate(duties, 1)]
    try:
        started(workers)
        words = ("--second", str(seconds), "--gpu", str(gpu))
        command = [sys.executable, "-m", "tests.gpu.usage", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            uses = asyncio.run(looks(gpu, seconds, every))
            output = json.loads(other.communicate(timeout=60)[0])
    finally:
        progress = {worker.pid: worker.end() for worker in workers}
    begin, end = uses[0].at.mono_ns / NS, uses[-1].at.mono_ns / NS
    seen = busy(uses)
    processes: list[dict[str, Any]] = [
        {
            "duty": worker.duty,
            "truth": percent(finished(progress[worker.pid], begin, end) * alone, end - begin),
            "podgpu": percent(seen.pop(worker.pid, 0), end - begin),
            "second": percent(output["shares"].get(str(worker.pid), 0), 1),
            "owner": str(owner_of(uses, worker.pid)),
        }
        for worker in workers
    ]
    first, last = uses[0].energy_mj, uses[-1].energy_mj
    joules = math.nan if first is None or last is None else (last - first) / 1000
    return {
        "duties": list(duties),
        "seconds": round(end - begin, 2),
        "looks": len(uses),
        "breaks": sum(use.since is None for use in uses[1:]),
        "processes": processes,
        "others": {pid: percent(share, end - begin) for pid, share in seen.items()},
        "sum": percent(sum((use.busy_ns or 0) / NS for use in uses), end - begin),
        "truth_sum": round(sum(one["truth"] for one in processes), 2),
        # Shown, and not compared: polls once a second lose up to an eighth of it.
        "second_sum": percent(sum(output["shares"].values()), 1),
        "watts": round(joules / (end - begin), 2),
        "second_watts": round(output["watts"], 2),
        "joules": round(joules, 1),
    }


def busy(uses: Iterable[DeviceUse]) -> dict[int, float]:
    """Return the busy seconds of each process."""
    found: dict[int, float] = defaultdict(float)
    for use in uses:
        for process in use.processes:
            found[process.pid] += (process.busy_ns or 0) / NS
    return found


def owner_of(uses: Iterable[DeviceUse], pid: int) -> object:
    """Return whose a process was said to be, or that nobody could say."""
    found = {process.owner for use in uses for process in use.processes if process.pid == pid}
    return next(iter(found)) if len(found) == 1 else found


def percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def wrong(figures: Any, *, held: bool) -> list[str]:
    """Say what is further from the truth than it may be."""
    found = []
    if not any(one["podgpu"] for one in figures["processes"]):
        pids = ", ".join(map(str, figures["others"])) or "none"
        found.append(f"none of the processes was seen, but {pids}: run this on the host")
    if held:
        found += [
            f"duty {one['duty']}: {one['podgpu']} instead of {one['truth']}"
            for one in figures["processes"]
            if abs(one["podgpu"] - one["truth"]) > POINTS
        ]
        if not abs(figures["sum"] - figures["truth_sum"]) <= SUM_POINTS:
            found.append(f"the sum: {figures['sum']} instead of {figures['truth_sum']}")
    apart = abs(figures["watts"] - figures["second_watts"])
    if not 100 * apart <= ENERGY_PERCENT * figures["second_watts"]:
        found.append(f"energy: {figures['watts']} W instead of {figures['second_watts']} W")
    if figures["breaks"]:
        found.append("looks that didn't go on where the one before ended")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds between two looks")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--work", nargs=2, metavar=("DUTY", "SEED"), help=argparse.SUPPRESS)
    parser.add_argument("--second", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    gpu: int = arguments.gpu
    if arguments.work:
        work(gpu, float(arguments.work[0]), int(arguments.work[1]))
    if arguments.second:
        second(gpu, arguments.second)
        return 0
    alone = solo(gpu)
    print(json.dumps({"one pass alone, microseconds": round(1e6 * alone, 1)}), flush=True)
    report, faults = [], []
    for duties, held in SCENES:
        figures = scene(gpu, duties, arguments.seconds, arguments.every, alone)
        figures["wrong"] = wrong(figures, held=held)
        faults += figures["wrong"]
        report.append(figures)
        print(json.dumps(figures), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=1))
    print("wrong:", "; ".join(faults) or "nothing")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
