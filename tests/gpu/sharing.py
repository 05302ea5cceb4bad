"""Steps on a GPU that several pods share, with checks of podgpu's accounts."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import HoldingRecord, read_holdings
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import GPU, container, pod, run
from tests.e2e.processes import wait_until
from tests.e2e.watched_podgpu import WatchedPodgpu
from tests.gpu.daemon import cpu_seconds, memory_mb
from tests.gpu.gpu_node import Figures
from tests.gpu.nvml_meter import Meter
from tests.gpu.pages import QUANTITIES, Page, grown, next_look
from tests.gpu.workloads import Task, Works

POINTS = 4.0
"""Maximum error of a pod's busy share, in percent of the GPU's time."""
ENERGY_PERCENT = 1.0
SHORT = 0.3
UNSURE = 2.0
"""Seconds for which the kubelet may allocate a device before the start or after the end of a
container."""


class Node:
    """The node, the podgpu that observes it, and their data.

    Args:
        kube: the cluster.
        podgpu: the observing podgpu.
        works: the environment in which pods work.
        meter: file with NVML's values during the run.
        ledger: the ledger's file.
    """

    def __init__(
        self, kube: Cluster, podgpu: WatchedPodgpu, works: Works, meter: Path, ledger: Path
    ) -> None:
        self.kube = kube
        self.podgpu = podgpu
        self.works = works
        self._meter = meter
        self._ledger = ledger

    @property
    def meter(self) -> Meter:
        return Meter(self._meter)

    @property
    def pid(self) -> int:
        """podgpu's pid."""
        assert self.podgpu.process is not None
        return self.podgpu.process.pid

    def rows(self, pod_name: str) -> list[HoldingRecord]:
        """Return the ledger's holdings of a pod."""
        with contextlib.closing(open_readonly(self._ledger)) as connection:
            rows = read_holdings(connection, 0, time.time_ns())
        return [row for row in rows if row.container.subject.pod == pod_name]

    def ended(self, pod_name: str) -> HoldingRecord:
        """Wait until the ledger has the ended holding of a pod, and return it."""

        def found() -> list[HoldingRecord]:
            return [row for row in self.rows(pod_name) if row.end_ns is not None]

        (row,) = wait_until(found, f"{pod_name} has an ended holding", 30)
        return row


def shared(
    node: Node, start: Sequence[Task], there: Sequence[Task], seconds: float, folder: Path
) -> Figures:
    """Let pods work for some time, and compare all accounts with the real work.

    Args:
        node: the node.
        start: pods to start.
        there: pods that run already.
        seconds: approximate duration.
        folder: folder for the pages of the start and the end.
    """
    node.works.start(node.kube, start)
    tasks = [*start, *there]
    time.sleep(1)
    before = next_look(node.podgpu.port)
    cpu = cpu_seconds(node.pid)
    time.sleep(seconds - 5)
    cpu = (cpu_seconds(node.pid) - cpu) / (seconds - 5)
    after = next_look(node.podgpu.port)
    for name, page in (("begin", before), ("end", after)):
        (folder / f"page-{start[0].name}-{name}.txt").write_text(page.text)
    time.sleep(0.2)
    passed = after.at - before.at
    busy, held = (grown(before, after, f"{name}_seconds_total") for name in ("busy", "held"))
    other = node.meter.busy(before.at, after.at)
    memory = after.of("podgpu_container_memory_used_bytes")
    pods = {
        task.name: {
            "duty": task.duty,
            "claims": task.claims,
            "truth": percent(node.works.share(node.kube, task, before.at, after.at)),
            "podgpu": percent(float(busy.get(task.name, 0)) / passed),
            "held": percent(float(held.get(task.name, 0)) / passed),
            "mib": round(memory.get(task.name, Decimal(0)) / 2**20),
        }
        for task in tasks
    }
    figures: Figures = {
        "seconds": round(passed, 2),
        "pods": pods,
        "unattributed": percent(float(busy[""]) / passed),
        "second": {pid: percent(value / passed) for pid, value in other.items() if value > 0},
        "second_sum": percent(sum(other.values()) / passed),
        "sum": percent(float(sum(busy.values())) / passed),
        "energy": energy(node, before, after),
        "cpu_percent": percent(cpu),
    }
    figures["faults"] = [*unlike(pods), *identities(before, after), *figures["energy"]["faults"]]
    return figures


def unlike(pods: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield differences between the accounts and the work of pods."""
    for name, one in pods.items():
        if abs(one["truth"] - one["podgpu"]) > POINTS:
            yield f"{name}: busy {one['podgpu']} instead of {one['truth']}"
        if (one["held"] > 0) is not one["claims"]:
            yield f"{name}: held {one['held']}"
        if not one["mib"]:
            yield f"{name}: no memory"
        if one["duty"] and not one["podgpu"] > 0:
            yield f"{name}: idle"


def identities(*pages: Page) -> Iterator[str]:
    """Yield quantities whose parts do not sum up exactly to the total."""
    for page in pages:
        whole = {
            "busy_seconds_total": page.of_device("podgpu_device_busy_seconds_total"),
            "held_seconds_total": page.accounted()[0],
        }
        for quantity, total in whole.items():
            parts = sum(page.account(quantity).values(), Decimal(0))
            if parts != total:
                yield f"{quantity}: {parts} in parts, {total} in total"


def energy(node: Node, before: Page, after: Page) -> Figures:
    """Compare the accounted energy with the GPU's counter."""
    parts = grown(before, after, QUANTITIES[2])
    accounted = float(sum(parts.values()))
    counter = node.meter.joules(before.at, after.at)
    off = 100 * abs(accounted - counter) / counter
    return {
        "parts": {name: round(float(joules), 1) for name, joules in parts.items()},
        "joules": round(accounted, 1),
        "counter": round(counter, 1),
        "percent_off": round(off, 3),
        "faults": [f"energy: {accounted} J, the counter {counter} J"]
        if off > ENERGY_PERCENT
        else [],
    }


def short(node: Node) -> Figures:
    """A pod runs for a short time: its holding covers its lifetime."""
    name = "moment"
    # The uptime, which container and node share, in hundredths of a second.
    script = run(f"cat /proc/uptime; sleep {SHORT}; cat /proc/uptime")
    made = container(resources={GPU: 1}, command=script)
    node.kube.run(pod(name, made, restart="Never"), "Succeeded")
    row = node.ended(name)
    assert row.end_ns is not None
    booted = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    begin, end = (booted + float(line.split()[0]) for line in node.kube.pod_log(name).splitlines())
    early, late = begin - row.start_ns / 1e9, row.end_ns / 1e9 - end
    figures: Figures = {
        "row": row_figures(row),
        "lived": round(end - begin, 2),
        "held_before": round(early, 2),
        "held_after": round(late, 2),
        "faults": [],
    }
    if min(early, late) < -0.05 or max(early, late) > UNSURE:
        figures["faults"].append(
            f"{name}: the holding begins {early} s before it, ends {late} s after"
        )
    if row.held_ns <= 0:
        figures["faults"].append(f"{name}: held for no time")
    node.kube.remove(name)
    return figures


def fault(node: Node, others: Sequence[Task]) -> Figures:
    """A pod causes an XID error: all pods on the GPU are affected."""
    task = Task("faulty", faults=True)
    node.works.start(node.kube, [task])

    wait_until(lambda: Page(node.podgpu.port).xids(), "affected pods", 30)
    time.sleep(2)
    page = Page(node.podgpu.port)
    victims = {name: {code: int(n) for code, n in of.items()} for name, of in page.xids().items()}
    node.works.end(node.kube, [task])
    row = node.ended(task.name)
    figures: Figures = {"victims": victims, "row": row_figures(row), "faults": []}
    expected = {task.name, *(other.name for other in others)}
    if victims.keys() != expected:
        figures["faults"].append(f"victims: {sorted(victims)} instead of {sorted(expected)}")
    if not row.xids:
        figures["faults"].append("the ledger has no XID of it")
    # An Event refers to its pod by the uid.
    with_event = expected - page.without_uid()
    with contextlib.suppress(AssertionError):  # the comparison says which are missing
        wait_until(lambda: with_event <= {one["pod"] for one in events(node)}, "all Events", 15)
    figures["events"] = events(node)
    if (pods := {one["pod"] for one in figures["events"]}) != with_event:
        figures["faults"].append(
            f"Events of {sorted(map(str, pods))} instead of {sorted(with_event)}"
        )
    return figures


def events(node: Node) -> list[Figures]:
    """Return the Events for XID errors."""
    return [
        {key: event.get(key) for key in ("reason", "message", "type", "count")}
        | {"pod": event.get("involvedObject", {}).get("name")}
        for event in node.kube.api.list("Event")
        if "xid" in json.dumps(event).lower()
    ]


def struck(node: Node, tasks: Sequence[Task]) -> Figures:
    """The ended holdings of affected pods contain the error."""
    rows = {task.name: node.ended(task.name) for task in tasks}
    return {
        "rows": {name: row_figures(row) for name, row in rows.items()},
        "faults": [f"{name}: the holding has no XID" for name, row in rows.items() if not row.xids],
    }


def without_host_pid(node: Node, port: int, several: Sequence[Task]) -> Figures:
    """Check the page of a podgpu without host PID namespace: unknown usage is not 0."""
    page = next_look(port)
    time.sleep(4)
    page = next_look(port)
    figures = {"probe": probed(node), "several": unseen(page)}
    figures["faults"] = [
        f"{name}: {value} {quantity}"
        for quantity, of in figures["several"].items()
        for name, value in of.items()
        if quantity != "unattributed" and name in {task.name for task in several} and not value
    ]
    return figures


def alone_without_host_pid(port: int, task: Task) -> Figures:
    """The same for a GPU with one holder: all usage is the holder's."""
    before = next_look(port)
    time.sleep(8)
    after = next_look(port)
    busy = grown(before, after, "busy_seconds_total")
    figures: Figures = {
        "percent": {name: percent(float(v) / (after.at - before.at)) for name, v in busy.items()},
        **unseen(after),
    }
    figures["faults"] = [
        f"{task.name}: {quantity} is not attributed to it"
        for quantity in ("memory", "busy")
        if not figures[quantity].get(task.name)
    ]
    return figures


def unseen(page: Page) -> Figures:
    """Return memory and busy time of a page."""
    memory, busy = (
        page.of(f"podgpu_container_{name}") for name in ("memory_used_bytes", "busy_seconds_total")
    )
    rest = {
        name: float(value)
        for (name, _), value in page.samples.items()
        if name.startswith("podgpu_device_unattributed_")
    }
    return {
        "memory": {name: float(value) for name, value in memory.items()},
        "busy": {name: float(value) for name, value in busy.items()},
        "unattributed": rest,
    }


def probed(node: Node) -> Any:
    lines = node.kube.pod_log("blind").splitlines()
    return next((json.loads(line) for line in lines if line.startswith("{")), None)


def row_figures(row: HoldingRecord) -> Figures:
    names = [name for name in HoldingRecord.__dataclass_fields__ if name != "container"]
    return {name: getattr(row, name) for name in names}


def percent(part: float) -> float:
    return round(100 * part, 2)


def overall(node: Node) -> Figures:
    """Return warnings of the log, and the totals of the ledger."""
    lines = node.podgpu.output().splitlines()
    done = subprocess.run(
        [sys.executable, "-m", "podgpu", "usage", "-c", node.podgpu.config, "--by", "namespace"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return {
        "memory_mb": memory_mb(node.pid),
        "warnings": [line for line in lines if "WARNING" in line or "ERROR" in line][:50],
        "usage": (done.stdout + done.stderr).splitlines(),
        "faults": [line for line in lines if "Traceback" in line],
    }
