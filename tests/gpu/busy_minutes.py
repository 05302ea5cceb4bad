"""Record healthy GPUs under full load, for the test that no alert fires on them.

    python3 -m tests.gpu.busy_minutes OUTPUT [--minutes 10]

It needs torch and GPUs that nothing else uses, and takes a minute more. Each GPU runs matrix
products at its power limit, a job on all GPUs, bursts, and copies within its memory. podgpu records
the default fields at the intervals of the chart, and one pod holds all GPUs. UUIDs, serial numbers
and the cluster of the fabric are replaced.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.gpu.driver_state import gpus
from tests.gpu.make_recording import rename

LOAD = Path(__file__).with_name("load.py")
CONFIG = """\
node: busy
sources:
  gpus: {{kind: nvml, interval: 5s, slow_interval: 30s}}
  podlist: {{kind: podlist, path: {podlist}}}
sinks:
  unused: {{kind: jsonl, path: "-"}}
"""
FULL, JOB, BURSTS, COPIES = 0.4, 0.3, 0.2, 0.1
"""The parts of the time for each load."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes
    uuids = list(gpus())
    with TemporaryDirectory() as folder:
        podlist = Path(folder) / "podlist.json"
        holder = {"name": "train-0", "namespace": "research", "container": "trainer"}
        podlist.write_text(json.dumps([{**holder, "gpu_list": uuids}]))
        config = Path(folder) / "podgpu.yaml"
        config.write_text(CONFIG.format(podlist=podlist))
        loads = [("full", seconds * FULL), ("nccl", seconds * JOB)]
        loads += [("burst", seconds * BURSTS), ("copy", seconds * COPIES)]
        # Before the recording: the load must be there from its first reading on.
        begun = _load("full", 20, len(uuids))
        time.sleep(15)
        recorder = subprocess.Popen(
            [sys.executable, "-m", "podgpu", "record", "-f", "-c", config, "-o", arguments.output]
        )
        try:
            _wait(begun)
            for kind, length in loads:
                _wait(_load(kind, length, len(uuids)))
        finally:
            recorder.terminate()
            status = recorder.wait(60)
    rename(arguments.output, uuids, podlist)
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes, {len(uuids)} GPUs")
    return status


def _load(kind: str, seconds: float, count: int) -> "list[subprocess.Popen[bytes]]":
    """Start a load on all GPUs: one process for a job, else one for each GPU."""
    if kind == "nccl":
        words = [["nccl", seconds]]
    else:
        more = {"burst": [0.6, 1.0]}.get(kind, [])
        words = [[kind, seconds, gpu, *more] for gpu in range(count)]
    return [subprocess.Popen([sys.executable, str(LOAD), *map(str, each)]) for each in words]


def _wait(loads: "list[subprocess.Popen[bytes]]") -> None:
    """Wait for the end of a load.

    Raises:
        RuntimeError: it failed, so that the GPUs were not busy.
    """
    statuses = [load.wait() for load in loads]
    if any(statuses):
        raise RuntimeError("a load failed; see its output above")


if __name__ == "__main__":
    sys.exit(main())
