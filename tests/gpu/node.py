"""Check podgpu's attribution with pods of a real kubelet that run CUDA programs.

    python3 -m tests.gpu.node --out DIR

Starts a Kubernetes cluster (as root; see tests/e2e/kube) whose device plugin offers this machine's
GPUs, and a podgpu that observes it. Prints and writes a JSON report, and keeps pages and podgpu's
log. The status is 1 if podgpu reported anything wrong. Needs torch.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import get
from tests.e2e.watched_podgpu import Owner, watching
from tests.gpu import driver_state, scenes
from tests.gpu.churn import churn
from tests.gpu.daemon import cpu_seconds, memory_mb
from tests.gpu.gpu_node import Figures, Stage
from tests.gpu.report import Report

MEMORY = 100
"""Maximum memory of podgpu with all of its sources, in MB."""
SETTLED = 120
"""Seconds after the start at which memory is measured."""
SCRAPE = 15
SCENES: tuple[Callable[[Stage, Path], Figures], ...] = (
    scenes.computing,
    scenes.ended,
    scenes.substituted,
    scenes.halves,
    churn,
)


def cost(stage: Stage, pid: int, began: float, seconds: float) -> Figures:
    """What podgpu takes while a pod holds all GPUs and nothing happens; a scrape each 15 s."""
    made = stage.kube.run(gpu_pod("rest", len(stage.minors)))["metadata"]
    owner = Owner("rest", "main", made["uid"])
    stage.expect({gpu: [owner] for gpu in stage.minors})
    stage.podgpu.recorder.end()
    time.sleep(3)
    before, cpu, start = stage.requests(), cpu_seconds(pid), time.monotonic()
    for _ in range(round(seconds / SCRAPE)):
        time.sleep(SCRAPE)
        get(stage.podgpu.port, "/metrics")
    passed = time.monotonic() - start
    used = cpu_seconds(pid) - cpu
    asked = stage.requests() - before
    time.sleep(max(0.0, began + SETTLED - time.monotonic()))
    memory = memory_mb(pid)
    figures = {
        "seconds": round(passed, 1),
        "cpu_percent": round(100 * used / passed, 3),
        "requests": dict(asked),
        "memory_mb": memory,
        "memory_after_seconds": round(time.monotonic() - began),
        "open_files": stage.podgpu.value("process_open_fds"),
    }
    assert memory["Rss"] <= MEMORY, figures
    return figures


def overall(stage: Stage) -> Figures:
    """Check the whole run: no wrong holder on any page, and no warning in the log."""
    untrue = stage.podgpu.recorder.wrong_holders(stage.true)
    lines = stage.podgpu.output().splitlines()
    levels = Counter(
        level for level in ("WARNING", "ERROR", "Traceback") for line in lines if level in line
    )
    figures: Figures = {
        "pages_that_differ": len(stage.podgpu.recorder.history),
        "requests": dict(stage.requests()),
        "log_lines": len(lines),
        "log_levels": dict(levels),
        "conflicts": sum(value for _, value in stage.podgpu.of("podgpu_attribution_conflicts")),
        "unresolved": sum(
            value for _, value in stage.podgpu.of("podgpu_unresolved_device_ids_total")
        ),
    }
    assert not untrue, untrue
    assert not levels, figures
    assert figures["conflicts"] == figures["unresolved"] == 0, figures
    return figures


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--seconds", type=float, default=45, help="duration of the cost measurement"
    )
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out / "report.json")
    minors = driver_state.gpus()
    report.add("gpus", lambda: dict(minors))
    with Cluster() as kube:
        plugin = kube.plugin(minors)
        with watching(kube, out / "podgpu", None, options={"nvml": {"interval": "1s"}}) as podgpu:
            assert podgpu.process is not None
            pid, began = podgpu.process.pid, time.monotonic()
            stage = Stage(kube, podgpu, plugin, minors)
            stage.expect({})
            report.add(
                "at_start",
                lambda: {
                    "memory_mb": memory_mb(pid),
                    "open_files": podgpu.value("process_open_fds"),
                },
            )
            for scene in SCENES:
                report.add(scene.__name__, partial(scene, stage, out))
                kube.remove_pods()
            report.add("cost", lambda: cost(stage, pid, began, arguments.seconds))
            report.add("overall", lambda: overall(stage))
            (out / "page-end.txt").write_bytes(get(podgpu.port, "/metrics").body)
    print("wrong:", ", ".join(report.wrong) or "nothing")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
