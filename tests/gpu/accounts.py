"""Compare podgpu's usage accounts with pods of known work that share one GPU of a real node.

    python3 -m tests.gpu.accounts --out DIR [--seconds 60] [--played]

Starts a Kubernetes cluster (as root; see tests/e2e/kube) whose device plugin offers replicas of the
first GPU, and a podgpu with all components that take part in the accounts. `--played` simulates the
GPU and the work. The report is written continuously. At the end the script prints all faults; its
status is 1 if there are any.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.processes import free_ports
from tests.e2e.watched_podgpu import RULES, watching
from tests.fakes.nvml import FakeNvml
from tests.gpu import sharing, without_host_pid
from tests.gpu.nvml_meter import metering
from tests.gpu.pages import next_look
from tests.gpu.report import Report
from tests.gpu.sharing import Node
from tests.gpu.workloads import PlayedWorks, RealWorks, Task

REPLICAS = 8
LEDGER = "ledger.db"
IDLE = Task("notebook")
STRAY = Task("stray", 0.1, claims=False)
TWO = (Task("train", 0.3), Task("serve", 0.6))
THREE = (Task("one", 0.2), Task("two", 0.2), Task("three", 0.2))
KINDS = ("podresources", "pods", "nri", "kernel")
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "nvml": {"interval": "1s", "slow_interval": "5s"},
    "podresources": {"interval": "1s"},
}
ALLOWED = (*RULES, access.rule(["events"], ["create", "patch"]))


def physical(ids: Sequence[str]) -> Sequence[str]:
    """Return the GPUs of replica ids."""
    return list(dict.fromkeys(one.partition("::")[0] for one in ids))


def sinks(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return podgpu's sinks besides the page."""
    return {
        "ledger": {"kind": "ledger", "path": str(folder / LEDGER)},
        "lines": {"kind": "jsonl", "path": str(folder / "lines.jsonl")},
        "events": {"kind": "events", "kubeconfig": str(folder / "kubeconfig"), "wait": "1s"},
    }


def steps(
    kube: Cluster, works: PlayedWorks | RealWorks, out: Path, report: Report, seconds: float
) -> None:
    """Run all steps."""
    kube.plugin([f"{works.gpu}::{n}" for n in range(REPLICAS)], substitute=physical)
    folder = out / "podgpu"
    with (
        metering(out, works.env) as meter,
        watching(
            kube, folder, works.scenario, KINDS, ALLOWED, options=OPTIONS, sinks=sinks(folder)
        ) as podgpu,
    ):
        podgpu.recorder.end()
        node = Node(kube, podgpu, works, meter, folder / LEDGER)
        next_look(podgpu.port, 30)
        report.add("short", partial(sharing.short, node))
        works.start(kube, [IDLE])
        report.add("two", partial(sharing.shared, node, TWO, [IDLE], seconds, out))
        works.end(kube, TWO)
        (port,) = free_ports(1)
        env = _played(out) if isinstance(works, PlayedWorks) else {}
        kube.create(without_host_pid.pod(kube, out / "blind", port, env, {}))
        there = [*THREE, STRAY, IDLE]
        report.add("three", partial(sharing.shared, node, there[:-1], [IDLE], seconds, out))
        report.add("without_host_pid", partial(sharing.without_host_pid, node, port, there[:-1]))
        report.add("xid", partial(sharing.fault, node, there))
        works.end(kube, there[1:])
        report.add(
            "alone_without_host_pid", partial(sharing.alone_without_host_pid, port, there[0])
        )
        report.add("struck", partial(sharing.struck, node, there[1:]))
        report.add("overall", partial(sharing.overall, node))


def _played(out: Path) -> dict[str, str]:
    """Return the variables with which a pod sees the simulated GPU without its processes."""
    (out / "blind").mkdir(parents=True, exist_ok=True)
    env = FakeNvml(replace(PlayedWorks.node(), hides_processes=True), out / "blind").env()
    return {key: value for key, value in env.items() if key != "FAKENVML_CALL_LOG"}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--played", action="store_true", help="simulate the GPU")
    arguments = parser.parse_args()
    out: Path = arguments.out
    (out / "podgpu").mkdir(parents=True, exist_ok=True)
    report = Report(out / "accounts.json")
    works = PlayedWorks(out / "podgpu") if arguments.played else RealWorks(out)
    report.add("alone", lambda: {"gpu": works.gpu, "seconds_of_a_pass": works.alone})
    with Cluster() as kube:
        steps(kube, works, out, report, arguments.seconds)
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
