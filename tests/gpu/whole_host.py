"""Compare and measure podgpu on a whole host with several GPUs: connections, cost, a recording.

    python3 -m tests.gpu.whole_host OUT [--seconds 580] [--turn 30] [--recording 300]

It takes --seconds altogether. A part for which too little time is left is cut, and the report
says so. OUT gets report.json, nvidia-smi's texts, and the recording. Needs the requirements, gcc
and nvidia-nvml-dev. The load is NCCL of torch if it can be used here, otherwise
tests/gpu/kernels.py. nvitop-exporter is measured if it is installed. Changes no setting of a GPU.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from types import FrameType
from typing import Any

import orjson

from pipeline.topology.document import restored
from tests.gpu import driver_state
from tests.gpu.choices import COUNTS, best_of_all, choices, wait_free
from tests.gpu.cost import build_floor, floor_used, page_of, podgpu_used, process_used
from tests.gpu.daemon import PORT, Daemon
from tests.gpu.podlist_recording import Work, load_kind, recorded, wait_working
from tests.gpu.report import Report
from tests.gpu.topology import different
from tests.soak.receiver import HttpReceiver

AIM = 1.15
"""Processor time of podgpu, as a multiple of the floor's."""
NVITOP_PORT = 19402
SMI = {
    "topo": ("topo", "-m"),
    "nvlink": ("nvlink", "-s"),
    "query": ("-q",),
}
"""Arguments of nvidia-smi by the name of the file with its output. All of them only read."""
EVERYTHING = """\
  ledger: {{kind: ledger, path: {folder}/ledger.db}}
  otlp: {{kind: otlp, protocol: http/protobuf, endpoint: "{url}"}}
"""


class Allotment:
    """Gives parts of a limited time to the steps of a report.

    Args:
        report: gets the figures of each step, or the reason why it is cut.
        seconds: the time for all steps.
    """

    def __init__(self, report: Report, seconds: float) -> None:
        self._report = report
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def run(self, name: str, least: float, most: float, work: Callable[[], dict[str, Any]]) -> None:
        """Run a step.

        Args:
            name: name of the step.
            least: seconds that it needs; if fewer are left, it is cut.
            most: seconds after which it fails.
            work: the step.
        """
        left = self.left()
        if left < least:
            reason = f"cut: {max(left, 0):.0f} s were left, and it needs {least:.0f} s"
            self._report.add(name, lambda: {"cut": reason})
            return

        def limited() -> dict[str, Any]:
            with limit(min(most, left)):
                return work()

        self._report.add(name, limited)


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in this block after some seconds. Only for the main thread."""

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def podgpu(*words: str) -> str:
    """Return the output of `podgpu topology` for the daemon of this run."""
    done = subprocess.run(
        [sys.executable, "-m", "podgpu", "topology", *words, "--url", f"http://127.0.0.1:{PORT}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout


def smi(out: Path) -> dict[str, str]:
    """Return nvidia-smi's texts, and write them to files."""
    texts = {}
    for name, words in SMI.items():
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, check=False, timeout=30
        )
        texts[name] = done.stdout
        (out / f"nvidia-smi-{name}.txt").write_text(done.stdout + done.stderr)
    return texts


def connections(daemon: Daemon, texts: Mapping[str, str], gpus: int) -> dict[str, Any]:
    """Compare the connections of all GPUs with nvidia-smi's, and choose among all GPUs.

    Args:
        daemon: a podgpu that reads this machine's GPUs.
        texts: nvidia-smi's outputs, as from `smi`.
        gpus: the number of GPUs.
    """
    wait_free(daemon, (1 << gpus) - 1, 30)
    began = time.monotonic()
    matrix = podgpu()
    took = time.monotonic() - began
    document = json.loads(podgpu("--json"))
    topology, _ = restored(document)
    shown = {}
    for n in COUNTS:
        if n <= gpus:
            lines = podgpu("best", "-n", str(n)).splitlines()
            shown[n] = [int(line.split("\t")[0]) for line in lines]
    # The document with the two keys that only the annotation has.
    annotation = orjson.dumps({**document, "at": round(time.time(), 3), "refresh": 300.0})
    faults = different(texts["topo"], texts["nvlink"], texts["query"], matrix, document)
    return {
        "matrix": matrix.splitlines(),
        "pairs": gpus * (gpus - 1) // 2,
        "nvlinks": [gpu.get("links") for gpu in document["gpus"]],
        "nvlink_groups": document["nvlink"],
        "fabrics": [[gpu.get("cluster"), gpu.get("clique")] for gpu in document["gpus"]],
        "best": shown,
        "annotation_bytes": len(annotation),
        "command_seconds": round(took, 2),
        "faults": faults + best_of_all(shown.items(), topology),
    }


def everything_used(folder: Path, seconds: float) -> dict[str, Any]:
    """Measure podgpu with ledger, JSON lines and OTLP."""
    receiver = HttpReceiver()
    receiver.start()
    try:
        more = EVERYTHING.format(folder=folder, url=receiver.url)
        return podgpu_used(Daemon(folder, more=more), seconds)
    finally:
        receiver.kill()


def nvitop_used(seconds: float) -> dict[str, Any]:
    """Measure nvitop-exporter, if it is installed."""
    if find_spec("nvitop_exporter") is None:
        return {"left_out": "nvitop-exporter is not installed"}
    words = ["--bind-address", "127.0.0.1", "--port", str(NVITOP_PORT), "--interval", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nvitop_exporter", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(5)
        page_of(NVITOP_PORT)
        return process_used(process.pid, partial(page_of, NVITOP_PORT), seconds)
    finally:
        process.terminate()
        process.wait(10)


@dataclass(frozen=True, slots=True)
class Turns:
    """The measurements of cost, which take turns.

    Attributes:
        report: gets their figures.
        allotment: the time that is left.
        seconds: duration of one turn, a multiple of the 30 s between slow rounds.
    """

    report: Report
    allotment: Allotment
    seconds: float

    def run(self, out: Path, floor: str) -> None:
        """Measure floor and podgpu twice, then podgpu with all sinks, then nvitop-exporter."""
        needed = self.seconds + 10
        plan: list[tuple[str, Callable[[], dict[str, Any]]]] = []
        for turn in (1, 2):
            folder = out / f"podgpu-{turn}"
            plan += [
                (f"floor_{turn}", partial(floor_used, floor, self.seconds)),
                (
                    f"podgpu_{turn}",
                    lambda folder=folder: podgpu_used(  # type: ignore[misc]
                        Daemon(folder, lines=False), self.seconds
                    ),
                ),
            ]
        everything = partial(everything_used, out / "podgpu-everything", self.seconds)
        plan += [
            ("podgpu_ledger_lines_otlp", everything),
            ("nvitop_exporter", partial(nvitop_used, self.seconds)),
        ]
        for name, work in plan:
            self.allotment.run(name, needed, needed + 30, work)
        self.report.add("cost", self.ratios)

    def ratios(self) -> dict[str, Any]:
        """Return processor time as a multiple of the floor's; null where a turn is missing."""

        def percent(*names: str) -> float | None:
            found = [self.report.figures.get(name, {}).get("cpu_percent") for name in names]
            known = [value for value in found if value is not None]
            return mean(known) if known else None

        floor = percent("floor_1", "floor_2")
        rows = {
            "podgpu": percent("podgpu_1", "podgpu_2"),
            "podgpu_ledger_lines_otlp": percent("podgpu_ledger_lines_otlp"),
            "nvitop_exporter": percent("nvitop_exporter"),
        }
        times = {
            name: None if floor is None or used is None else round(used / floor, 3)
            for name, used in rows.items()
        }
        ours = times["podgpu"]
        return {"aim": AIM, "times_floor": times, "reached": None if ours is None else ours <= AIM}


def cost(turns: Turns, out: Path, gpus: Sequence[str], kind: str) -> None:
    """Measure all turns under a load of all GPUs."""
    floor = build_floor(out)
    load = Work(kind, gpus)
    try:
        wait_working(dict.fromkeys(gpus, 1))
        turns.run(out, floor)
    finally:
        load.stop()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=580, help="time for all parts")
    parser.add_argument("--turn", type=float, default=30, help="seconds: a multiple of 30")
    parser.add_argument("--recording", type=float, default=300, help="seconds of the recording")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out / "report.json")
    allotment = Allotment(report, arguments.seconds)
    minors = driver_state.gpus()
    gpus = list(minors)
    kind = load_kind()
    report.add("host", lambda: {"gpus": minors, "load": kind})
    with Daemon(out / "podgpu-topology", lines=False) as daemon:
        allotment.run("connections", 20, 60, lambda: connections(daemon, smi(out), len(gpus)))
        allotment.run("choices", 10, 60, lambda: choices(daemon, len(gpus)))
    try:
        cost(Turns(report, allotment, arguments.turn), out, gpus, kind)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        message = f"the cost was not measured: {error}"
        report.add("cost", lambda: {"faults": [message]})
    seconds = min(arguments.recording, allotment.left() - 20)
    allotment.run(
        "recording", 50, seconds + 60, partial(recorded, out / "recording", gpus, kind, seconds)
    )
    if seconds < arguments.recording:
        print(f"the recording is cut to {max(seconds, 0):.0f} s", flush=True)
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
