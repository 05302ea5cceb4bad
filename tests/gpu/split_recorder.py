"""Record what NVML reports about processes that share one GPU, beside the work that they do.

    python3 split_recorder.py GPU SECONDS FOLDER SCENE...

Each scene is a set of processes with a known load. The file `FOLDER/SCENE.json` gets the raw
answers of NVML and the work of each process, on one clock. Needs Python, the driver, and
nvidia-ml-py; changes no setting. `recorded_splits` has what it recorded, without what
`split_error.py` does not use.
"""

import json
import os
import random
import subprocess
import sys
import time
from ctypes import c_uint, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from kernels import BLOCKS, THREADS, Cuda  # type: ignore[import-not-found]

SYNC_SECONDS: Final = 0.003
"""Kernels are launched in batches of at least this length, so that switches stay rare."""

PRINT_SECONDS: Final = 0.05
ENTRY_SECONDS: Final = 0.1
SLOW_EVERY: Final = 10
"""Process lists, energy and samples of utilization are read with each tenth read of the entries."""

PROFILE_EVERY: Final = 2
"""Profiling fields are read with each second read of the entries."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a process.

    Attributes:
        duty: fraction of the time for which it has work; 1 is always.
        kernel_ms: length of a kernel without other load.
        burst: shortest and longest time of a burst, in seconds.
    """

    duty: float
    kernel_ms: float
    burst: tuple[float, float] = (0.02, 0.3)


SCENES: Final[dict[str, tuple[Load, ...]]] = {
    # The scenes of the known table: for choosing a method.
    "a-four-small": (Load(0.2, 2.5), Load(0.2, 2.5), Load(0.2, 2.5), Load(0.1, 2.5)),
    "b-two": (Load(0.3, 2.5), Load(0.6, 2.5)),
    "c-small-beside-large": (Load(0.1, 2.5), Load(0.8, 2.5)),
    "d-four-tiny-beside-one": (*[Load(0.05, 2.5)] * 4, Load(0.4, 2.5)),
    # For judging it.
    "e-two-saturated": (Load(1, 0.5), Load(1, 5)),
    "f-six-mixed": (
        Load(0.1, 0.1),
        Load(0.1, 10),
        Load(0.2, 1),
        Load(0.05, 3),
        Load(0.15, 0.3, (0.5, 2)),
        Load(0.08, 5, (0.05, 0.1)),
    ),
    "g-three-lengths": (Load(0.5, 10), Load(0.15, 0.1), Load(0.15, 1)),
    "h-saturated-with-small": (Load(1, 2), Load(1, 8), Load(0.2, 0.5), Load(0.05, 0.2)),
}


class Worker:
    """Kernels of one length on the visible GPU."""

    def __init__(self, kernel_ms: float) -> None:
        self._cuda = Cuda()
        self._out = c_uint64(self._cuda.allocate(4096))
        probe = 200_000
        self._rounds = probe
        launch = self._kernel(probe)
        self._run(launch, 400)
        seconds = self._run(launch, 400) / 400
        self._rounds = max(int(probe * kernel_ms / 1000 / seconds), 1)
        self._launch = self._kernel(self._rounds)
        self.batch = max(int(SYNC_SECONDS / (kernel_ms / 1000)), 1)
        self.done = 0

    def _kernel(self, rounds: int) -> Any:
        return self._cuda.kernel("spin", BLOCKS, THREADS, c_uint(rounds), self._out)

    def _run(self, launch: Any, count: int) -> float:
        begun = time.monotonic()
        for _ in range(count):
            launch()
        self._cuda.wait()
        return time.monotonic() - begun

    def solo(self) -> float:
        """Return the seconds of one kernel without other load, in batches as at work."""
        count = max(int(0.7 / (self.batch * SYNC_SECONDS)), 3)
        best = 1e9
        for _ in range(3):
            begun = time.monotonic()
            for _ in range(count):
                self._run(self._launch, self.batch)
            best = min(best, (time.monotonic() - begun) / (count * self.batch))
        return best

    def pass_once(self) -> None:
        """Run one batch."""
        self._run(self._launch, self.batch)
        self.done += self.batch


def work(load: Load, seed: int) -> None:
    """Measure a kernel's length, wait for a line, then work until killed; print the progress."""
    worker = Worker(load.kernel_ms)
    print(json.dumps({"solo": worker.solo(), "batch": worker.batch}), flush=True)
    sys.stdin.readline()
    drawn = random.Random(seed)
    printed = 0.0
    time.sleep(drawn.uniform(0, 0.2))
    while True:
        begun = time.monotonic()
        length = drawn.uniform(*load.burst)
        while (passed := time.monotonic() - begun) < length:
            worker.pass_once()
            if time.monotonic() - printed > PRINT_SECONDS:
                printed = time.monotonic()
                print(f"{printed:.4f} {worker.done}", flush=True)
        print(f"{time.monotonic():.4f} {worker.done}", flush=True)
        if load.duty < 1:
            time.sleep(passed * (1 - load.duty) / load.duty)


def record(gpu: int, name: str, seconds: float, folder: Path) -> None:
    """Record a scene to a file."""
    import pynvml as nvml

    nvml.nvmlInit()
    card = nvml.nvmlDeviceGetHandleByIndex(gpu)
    loads = SCENES[name]
    environment = os.environ | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": str(gpu),
    }
    workers: list[subprocess.Popen[str]] = []
    solos: list[dict[str, Any]] = []
    paths = [folder / f"{name}.{place}.work" for place in range(len(loads))]
    for place in range(len(loads)):
        command = [sys.executable, __file__, "work", name, str(place)]
        made = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        workers.append(made)
        assert made.stdout is not None
        solos.append(json.loads(made.stdout.readline()))  # one after the other: without other load
    copies = []
    for made, path in zip(workers, paths, strict=True):
        copies.append(subprocess.Popen(["cat"], stdin=made.stdout, stdout=path.open("w")))
    found: dict[str, Any] = {
        "scene": name,
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "model": nvml.nvmlDeviceGetName(card),
        "loads": [[one.duty, one.kernel_ms, one.burst] for one in loads],
        "pids": [made.pid for made in workers],
        "solo": solos,
        "monotonic_to_wall": time.time() - time.monotonic(),
        "entries": [],
        "utilization": [],
        "lists": [],
        "energy": [],
        "samples": [],
        "profile": [],
    }
    last = 0
    sampled = 0
    earlier = nvml.nvmlGpmSampleAlloc()
    later = nvml.nvmlGpmSampleAlloc()
    nvml.nvmlGpmSampleGet(card, earlier)
    for made in workers:
        assert made.stdin is not None
        made.stdin.write("go\n")
        made.stdin.flush()
    begun = time.monotonic()
    count = 0
    while (now := time.monotonic()) < begun + seconds:
        try:
            for one in nvml.nvmlDeviceGetProcessUtilization(card, last):
                row = [round(now, 4), one.pid, one.timeStamp, one.smUtil, one.memUtil]
                found["entries"].append(row)
                last = max(last, one.timeStamp)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:
                found["entries"].append([round(now, 4), str(error)])
        rates = nvml.nvmlDeviceGetUtilizationRates(card)
        found["utilization"].append([round(now, 4), rates.gpu, rates.memory])
        if count % SLOW_EVERY == 0:
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(card)
            found["lists"].append(
                [round(now, 4), [[each.pid, each.usedGpuMemory] for each in processes]]
            )
            found["energy"].append([round(now, 4), nvml.nvmlDeviceGetTotalEnergyConsumption(card)])
            kind = nvml.NVML_GPU_UTILIZATION_SAMPLES
            try:
                _, samples = nvml.nvmlDeviceGetSamples(card, kind, sampled)
                for each in samples:
                    found["samples"].append([each.timeStamp, each.sampleValue.uiVal])
                    sampled = max(sampled, each.timeStamp)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_FOUND:
                    raise
        if count % PROFILE_EVERY == 0:
            at = time.monotonic()
            nvml.nvmlGpmSampleGet(card, later)
            asked = nvml.c_nvmlGpmMetricsGet_t()
            asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = 4
            asked.sample1, asked.sample2 = earlier, later
            for place, metric in enumerate((1, 2, 3, 10)):
                asked.metrics[place].metricId = metric
            nvml.nvmlGpmMetricsGet(asked)
            found["profile"].append(
                [round(at, 4), *[round(asked.metrics[place].value, 3) for place in range(4)]]
            )
            earlier, later = later, earlier
        count += 1
        time.sleep(max(begun + count * ENTRY_SECONDS - time.monotonic(), 0))
    for made in workers:
        made.kill()
        made.wait()
    for copy in copies:
        copy.wait()
    found["work"] = []
    for path in paths:
        rows = [line.split() for line in path.read_text().splitlines()]
        found["work"].append([[float(row[0]), int(row[1])] for row in rows if len(row) == 2])
        path.unlink()
    (folder / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")))
    report(found)


def report(found: dict[str, Any]) -> None:
    """Print the true share of each process, and that by the entries."""
    rows = [row for row in found["entries"] if len(row) > 2]
    begin = found["lists"][0][0] + 2
    end = found["lists"][-1][0]
    truth = []
    for points, solo in zip(found["work"], found["solo"], strict=True):
        inside = [row for row in points if begin <= row[0] <= end]
        truth.append(round(100 * (inside[-1][1] - inside[0][1]) * solo["solo"] / (end - begin), 1))
    shares = {
        pid: round(sum(row[3] for row in rows if row[1] == pid) * 0.2 / (end - begin), 1)
        for pid in found["pids"]
    }
    print(
        found["scene"],
        f"{end - begin:.0f} s, truth {truth}, entries {list(shares.values())}",
        f"entries a second {len(rows) / (end - begin):.2f}",
        f"solo ms {[round(1000 * one['solo'], 3) for one in found['solo']]}",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1] == "work":
        place = int(sys.argv[3])
        work(SCENES[sys.argv[2]][place], 17 * place + len(sys.argv[2]))
    else:
        for scene in sys.argv[4:]:
            record(int(sys.argv[1]), scene, float(sys.argv[2]), Path(sys.argv[3]))
