"""Compare podgpu's parts of a Slurm job and a Podman container that share a GPU with their work.

    python3 -m tests.gpu.owners_share --out DIR [--seconds 60] [--played]

Starts Slurm and Podman as root, a job and a container of known work on the first GPU, and a podgpu
that observes both. `--played` simulates the GPU and the work. The report is written continuously.
At the end the script prints all faults; its status is 1 if there are any. packed_root.py runs it
on a machine without Slurm and Podman.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipeline.model import NS, split_error_ns
from tests.e2e.node import PODGPU
from tests.e2e.podgpu import Podgpu
from tests.e2e.processes import wait_until
from tests.e2e.slurm_node import running_slurm
from tests.gpu.nvml_meter import Meter, metering
from tests.gpu.owner_programs import CONTAINER, JOB, USER, Owners, played, real
from tests.gpu.pages import Page, next_look
from tests.gpu.report import Report

POINTS: Final = 4.0
"""Maximum error of a busy share, in percent of the GPU's time."""
ENERGY_PERCENT: Final = 1.0
ALONE_SECONDS: Final = 15
"""How long the container works after the end of the job."""
MIB: Final = 1 << 20
UNATTRIBUTED: Final = "unattributed"
KEPT: Final = ("*.conf", "*.out", "*.log", "*.txt", "*.yaml", "*.jsonl", "*.db")


class Node:
    """The node, the podgpu that observes it, and their data.

    Args:
        owners: the job and the container.
        podgpu: the observing podgpu.
        folder: the folder of all files.
    """

    def __init__(self, owners: Owners, podgpu: Podgpu, folder: Path) -> None:
        self.owners = owners
        self.podgpu = podgpu
        self.folder = folder
        self.ledger = folder / "usage.db"

    def configure(self) -> None:
        """Write podgpu's configuration."""
        gpus = {"kind": "nvml", "interval": "1s"}
        jobs = {"kind": "slurm", "interval": "1s"}
        containers = {"kind": "docker", "socket": str(self.owners.podman.socket)}
        ledger = {"kind": "ledger", "path": str(self.ledger), "commit_interval": "1s"}
        lines = {"kind": "jsonl", "path": str(self.folder / "lines.jsonl")}
        self.podgpu.configure(
            self.owners.slurm.node,
            {"gpus": gpus, "jobs": jobs, "containers": containers},
            {"usage": ledger, "lines": lines},
        )

    def parts(self, page: Page, quantity: str) -> dict[str, Decimal]:
        """Return the parts of a quantity on the first GPU: of the job, the container, the rest."""
        found: dict[str, Decimal] = {}
        for (name, pairs), value in page.samples.items():
            labels = dict(pairs)
            if labels.get("UUID") != self.owners.gpu:
                continue
            if name == f"podgpu_container_{quantity}":
                owner = JOB.name if labels.get("hpc_job") else labels["container"]
                found[owner] = found.get(owner, Decimal(0)) + value
            elif name == f"podgpu_device_unattributed_{quantity}":
                found[UNATTRIBUTED] = value
        return found

    def grown(self, before: Page, after: Page, quantity: str) -> dict[str, float]:
        """Return the growth of the parts of a quantity."""
        old = self.parts(before, quantity)
        new = self.parts(after, quantity)
        return {name: float(value - old.get(name, Decimal(0))) for name, value in new.items()}

    def holders(self) -> set[str]:
        """Return the owners that hold the GPU, by the page."""
        found = self.podgpu.of("podgpu_device_holder_info", UUID=self.owners.gpu)
        return {JOB.name if labels.get("hpc_job") else labels["container"] for labels, _ in found}

    def usage(self, by: str) -> Any:
        """Return the rows of a report from the ledger."""
        command = (PODGPU, "usage", "--ledger", self.ledger, "--by", by, "--format", "json")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"]


def machine() -> dict[str, Any]:
    """Return the versions of everything that takes part."""
    return {
        "cgroups": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        "mounts": _output("grep", "cgroup", "/proc/self/mountinfo"),
        "kernel": _output("uname", "-r"),
        "slurm": _output("slurmd", "-V"),
        "podman": _output("podman", "--version"),
        "gpu": _output("nvidia-smi", "--query-gpu=name,driver_version,memory.used", "--format=csv"),
        "devices": _output("sh", "-c", "ls -l /dev/nvidia*"),
    }


def _output(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [str(error)]
    return (done.stdout + done.stderr).splitlines()[:40]


def begin(node: Node) -> dict[str, Any]:
    """Start the job and the container; return what the kernel and podgpu say of them."""
    node.owners.start()
    wait_until(lambda: JOB.name in node.holders(), "the job holds the GPU", 20)
    pids = {work.name: node.owners.pid(work) for work in (JOB, CONTAINER)}
    return {
        "holders": sorted(node.holders()),
        "conflicts": node.podgpu.of("podgpu_attribution_conflicts", UUID=node.owners.gpu)[0][1],
        "pids": pids,
        "cgroups": {
            name: Path(f"/proc/{pid}/cgroup").read_text().splitlines() for name, pid in pids.items()
        },
        "job_folders": _output("find", "/sys/fs/cgroup", "-path", "*slurm*", "-type", "d"),
        "scontrol": node.owners.slurm.command("scontrol", "-d", "show", "job", node.owners.job),
        "labels": _labels(node),
    }


def _labels(node: Node) -> list[dict[str, str]]:
    """Return the labels of the series of busy time."""
    found = node.podgpu.of("podgpu_container_busy_seconds_total", UUID=node.owners.gpu)
    return [{key: value for key, value in labels.items() if value} for labels, _ in found]


def together(node: Node, meter: Path, seconds: float) -> dict[str, Any]:
    """Compare the accounts with the work while both work."""
    before = next_look(node.podgpu.port)
    driver = node.owners.driver_average(round(seconds))
    after = next_look(node.podgpu.port)
    for name, page in (("before", before), ("after", after)):
        (node.folder / f"page-{name}.txt").write_text(page.text)
    passed = after.at - before.at
    busy, held, joules = (
        node.grown(before, after, quantity)
        for quantity in ("busy_seconds_total", "held_seconds_total", "energy_joules_total")
    )
    contests = [
        node.grown(before, after, quantity)
        for quantity in ("contested_busy_seconds_total", "switching_seconds_total")
    ]
    memory = node.parts(after, "memory_used_bytes")
    owners = {
        work.name: {
            "duty": work.duty,
            "truth_percent": _percent(node.owners.share(work, before.at, after.at)),
            "podgpu_percent": _percent(busy.get(work.name, 0) / passed),
            "podgpu_error_percent": _error(contests, work.name, passed),
            "podgpu_busy_seconds": busy.get(work.name),
            "podgpu_held_seconds": held.get(work.name),
            "podgpu_joules": joules.get(work.name),
            "podgpu_mib": _mebibytes(memory.get(work.name)),
            "allocated_mib": work.mebibytes,
            "pmon": driver.get(str(node.owners.pid(work))),
        }
        for work in (JOB, CONTAINER)
    }
    time.sleep(0.2)  # the meter is at the end of the window
    counter = Meter(meter).joules(before.at, after.at)
    figures = {
        "seconds": round(passed, 2),
        "owners": owners,
        "unattributed": {
            "busy_percent": _percent(busy[UNATTRIBUTED] / passed),
            "held_seconds": held.get(UNATTRIBUTED),
            "joules": joules[UNATTRIBUTED],
            "mib": _mebibytes(memory.get(UNATTRIBUTED)),
        },
        "joules": round(sum(joules.values()), 1),
        "counter_joules": round(counter, 1),
        "pmon": driver,
    }
    figures["faults"] = _faults(node, figures, after)
    return figures


def _faults(node: Node, figures: dict[str, Any], after: Page) -> list[str]:
    found = []
    for name, one in figures["owners"].items():
        error = abs(one["truth_percent"] - one["podgpu_percent"])
        if error > min(POINTS, one["podgpu_error_percent"]):
            found.append(
                f"{name}: {one['podgpu_percent']} % instead of {one['truth_percent']} %, with an "
                f"error of at most {one['podgpu_error_percent']} %"
            )
        if not (one["podgpu_mib"] or 0) >= one["allocated_mib"]:
            found.append(f"{name}: {one['podgpu_mib']} MiB, it allocated {one['allocated_mib']}")
    off = abs(figures["joules"] - figures["counter_joules"])
    if 100 * off > ENERGY_PERCENT * figures["counter_joules"]:
        found.append(f"energy: {figures['joules']} J, the counter {figures['counter_joules']} J")
    for quantity, total in (
        ("busy_seconds_total", "podgpu_device_busy_seconds_total"),
        ("held_seconds_total", "podgpu_device_accounted_seconds_total"),
    ):
        (whole,) = (
            value
            for (name, pairs), value in after.samples.items()
            if name == total and dict(pairs).get("UUID") == node.owners.gpu
        )
        if sum(node.parts(after, quantity).values()) != whole:
            found.append(f"{quantity}: the parts are not {whole}")
    held = {name: one["podgpu_held_seconds"] for name, one in figures["owners"].items()}
    if abs((held[JOB.name] or 0) - figures["seconds"]) > 1 or held[CONTAINER.name]:
        found.append(f"held: {held} of {figures['seconds']} s, which Slurm gave to the job")
    return found


def container_alone(node: Node) -> dict[str, Any]:
    """End the job: then the container holds the GPU."""
    node.owners.end_job()
    wait_until(lambda: node.holders() == {CONTAINER.name}, "only the container holds it", 30)
    next_look(node.podgpu.port)
    before = next_look(node.podgpu.port)
    time.sleep(ALONE_SECONDS)
    after = next_look(node.podgpu.port)
    passed = after.at - before.at
    busy = node.grown(before, after, "busy_seconds_total")
    held = node.grown(before, after, "held_seconds_total")
    truth = _percent(node.owners.share(CONTAINER, before.at, after.at))
    seen = _percent(busy.get(CONTAINER.name, 0) / passed)
    faults = []
    if abs(truth - seen) > POINTS:
        faults.append(f"{CONTAINER.name}: {seen} % instead of {truth} %")
    if abs(held.get(CONTAINER.name, 0) - passed) > 1:
        faults.append(f"{CONTAINER.name}: held {held} of {passed} s")
    return {
        "seconds": round(passed, 2),
        "truth_percent": truth,
        "podgpu_percent": seen,
        "held_seconds": held,
        "faults": faults,
    }


def reports(node: Node) -> dict[str, Any]:
    """Return the ledger's reports after the end of both."""
    node.owners.end_container()
    wait_until(lambda: not node.holders(), "nothing holds the GPU", 30)
    next_look(node.podgpu.port)
    status = node.podgpu.stop()
    found = {by: node.usage(by) for by in ("user", "account", "job", "image")}
    faults = [
        f"--by {by} does not show {name}"
        for by, name in (("user", USER), ("image", node.owners.image))
        if name not in json.dumps(found[by])
    ]
    if status:
        faults.append(f"podgpu ended with {status}")
    return {"rows": found, "faults": faults}


def overall(node: Node) -> dict[str, Any]:
    """Return what podgpu logged."""
    lines = node.podgpu.output().splitlines()
    return {
        "warnings": [line for line in lines if "WARNING" in line or "ERROR" in line][:40],
        "faults": [line for line in lines if "Traceback" in line],
    }


def _error(contests: Sequence[Mapping[str, float]], name: str, seconds: float) -> float:
    """Return the bound of the error of a busy time, in percent of the GPU's time."""
    contested, switching = (round(grown.get(name, 0) * NS) for grown in contests)
    return _percent((split_error_ns(contested, switching) or 0) / NS / seconds)


def _percent(part: float) -> float:
    return round(100 * part, 2)


def _mebibytes(size: Decimal | None) -> int | None:
    return None if size is None else round(size / MIB)


def steps(folder: Path, report: Report, seconds: float, *, is_played: bool) -> None:
    """Run all steps."""
    report.add("machine", machine)
    with ExitStack() as stack:
        setting = (played if is_played else real)(folder)
        slurm = stack.enter_context(running_slurm(_made(folder / "slurm"), setting.devices))
        podman = stack.enter_context(setting.podman(_made(folder / "podman")))
        owners = Owners(setting, slurm, podman, _made(folder / "work"))
        report.add("alone", lambda: {"gpu": owners.gpu, "seconds_of_a_pass": setting.alone})
        podgpu = Podgpu(_made(folder / "podgpu"), setting.scenario)
        podgpu.env = {**podgpu.env, "SLURM_CONF": slurm.env["SLURM_CONF"]}
        owners.fake = podgpu.fake
        node = Node(owners, podgpu, folder)
        node.configure()
        meter = stack.enter_context(metering(folder, podgpu.env))
        podgpu.start()
        stack.callback(podgpu.stop)
        next_look(podgpu.port, 30)
        report.add("begin", partial(begin, node))
        report.add("together", partial(together, node, meter, seconds))
        report.add("container_alone", partial(container_alone, node))
        report.add("reports", partial(reports, node))
        report.add("overall", partial(overall, node))
        (folder / "slurm.txt").write_text(slurm.output())


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o755)
    return folder


def _keep(folder: Path, target: Path) -> None:
    """Save the logs and pages of a run."""
    with tarfile.open(target, "w:gz") as archive:
        for pattern in KEPT:
            for file in (*folder.glob(pattern), *folder.glob(f"*/{pattern}")):
                archive.add(file, file.relative_to(folder))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--played", action="store_true", help="simulate the GPU")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out / "owners_share.json")
    with tempfile.TemporaryDirectory(prefix="owners-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # the job runs as another user
        try:
            steps(folder, report, arguments.seconds, is_played=arguments.played)
        finally:
            _keep(folder, out / "files.tar.gz")
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
