"""Compare podgpu's usage samples with processes of known work.

    python3 -m tests.gpu.usage [--out FILE] [--seconds 60] [--gpu 0] [--every 5]

For each scenario, processes work for a fraction of the time on one GPU while the source `nvml`
takes samples. The true busy time is the number of finished passes over an array, multiplied by the
duration of a pass without other load. A second process reads the same with pynvml. Prints a line of
JSON for each scenario; the status is 1 if a difference is too large. Needs torch and a GPU without
other load.
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
"""Passes between two reads of the clock, which take some milliseconds."""
POINTS = 4.0
"""Maximum error of a process' share, in percent of the GPU's time, if the load does not saturate
it."""
SUM_POINTS = 2.5
"""The same for all processes together; switching between them is busy time too."""
ENERGY_PERCENT = 1.0

# Duties, and whether they are checked: the driver's values are biased if the load saturates the
# GPU.
SCENES: tuple[tuple[Sequence[float], bool], ...] = (
    ((0.3,), True),
    ((0.3, 0.6), True),
    ((0.2, 0.2, 0.2), True),
    ((0.1, 0.8), True),
    ((1.0, 1.0), False),
)


def work(gpu: int, duty: float, seed: int) -> None:
    """Work in bursts of random length until killed, and print times and numbers of passes.

    Each length is random, because a load in step with the driver's samples is measured wrongly.
    """
    import torch

    torch.cuda.set_device(gpu)
    # The work needs little power: at the power limit the clocks fall, and the duration of a pass
    # would not be constant.
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
    """Read process utilisation and energy from NVML each second, and print the totals as JSON."""
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
    """A process of known work, and its output."""

    def __init__(self, gpu: int, duty: float, seed: int) -> None:
        self.duty = duty
        # Not a pipe, because it is read only at the end, and a full pipe would block the process.
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by end()
        words = ("--work", str(duty), str(seed), "--gpu", str(gpu))
        command = [sys.executable, "-m", "tests.gpu.usage", *words]
        self._process = subprocess.Popen(command, stdout=self._output)
        self.pid = self._process.pid

    def begun(self) -> bool:
        """Return whether it has printed something; the first use of CUDA takes seconds.

        Raises:
            RuntimeError: it has ended.
        """
        if self._process.poll() is not None:
            raise RuntimeError("a worker ended too early: see its output above")
        return os.fstat(self._output.fileno()).st_size > 0

    def end(self) -> list[tuple[float, int]]:
        """Stop it; return times and numbers of finished passes."""
        self._process.kill()
        self._process.wait(20)
        self._output.seek(0)
        pairs = [line.split() for line in self._output.read().splitlines()]
        self._output.close()
        # The last line may be incomplete after the kill.
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
    """Return the number of passes that were finished between two times."""

    def by(moment: float) -> float:
        before = max((one for one in progress if one[0] <= moment), default=progress[0])
        after = min((one for one in progress if one[0] > moment), default=progress[-1])
        if after[0] <= before[0]:
            return before[1]
        part = (moment - before[0]) / (after[0] - before[0])
        return before[1] + min(1.0, max(0.0, part)) * (after[1] - before[1])

    return by(end) - by(begin)


def solo(gpu: int) -> float:
    """Return the seconds of one pass without other load on the GPU."""
    worker = Worker(gpu, 1.0, 0)
    started([worker])
    time.sleep(5)
    progress = worker.end()
    end = progress[-1][0]
    return 4 / finished(progress, end - 4, end)


async def looks(gpu: int, seconds: float, every: float) -> list[DeviceUse]:
    """Run the source for some time; return its usage samples."""
    ctx = FakeSourceContext()
    # Another path of procfs, for which the source assumes that all processes are visible.
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
    """Run a scenario; return its figures, with shares in percent of the time between first and last
    sample."""
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
        # Not compared, because reading once a second loses up to an eighth of it.
        "second_sum": percent(sum(output["shares"].values()), 1),
        "watts": round(joules / (end - begin), 2),
        "second_watts": round(output["watts"], 2),
        "joules": round(joules, 1),
    }


def busy(uses: Iterable[DeviceUse]) -> dict[int, float]:
    """Return the busy seconds by process."""
    found: dict[int, float] = defaultdict(float)
    for use in uses:
        for process in use.processes:
            found[process.pid] += (process.busy_ns or 0) / NS
    return found


def owner_of(uses: Iterable[DeviceUse], pid: int) -> object:
    """Return the reported owner of a process; a set if there is not exactly one."""
    found = {process.owner for use in uses for process in use.processes if process.pid == pid}
    return next(iter(found)) if len(found) == 1 else found


def percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def wrong(figures: Any, *, held: bool) -> list[str]:
    """Return the differences that are too large."""
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
        found.append("a sample does not continue the previous one")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds between two samples")
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
