"""Compare `podgpu dcgm-exporter --kubernetes-virtual-gpus` with nvidia-smi on a shared GPU.

    python3 -m tests.gpu.virtual_gpus --out DIR [--seconds 40] [--played | --cluster]

Needs a GPU without other load and nvidia-smi; no torch, no network. Three pods share the first GPU:
two work, one only holds memory. With `--cluster`, they are pods of a real Kubernetes node (as root;
see tests/e2e/kube). Otherwise three processes stand for them: a fake kubelet and a fake API server
report the pods, and a copy of procfs has the processes in the cgroups of these pods. podgpu runs
with the configuration that `--print-config` prints, with only paths changed. The utilisation of
each pod is compared with `nvidia-smi pmon`, and its memory with `nvidia-smi --query-compute-apps`.
Changes no setting of the GPU. `--played` simulates the GPU and nvidia-smi. Prints the figures side
by side; the status is 1 if a difference is too large.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Final, Literal, TypeAlias

import pynvml
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.processes import free_ports, get, wait_until
from tests.fakes.kubelet import FakeKubelet, pod
from tests.fakes.nvml import FakeNvml, Load, Proc, Ramp, h100s
from tests.gpu import driver_state, kernels
from tests.gpu.accounts import physical
from tests.gpu.mps_workloads import TENANTS, UIDS, Procfs, ended
from tests.gpu.workloads import RealWorks, Task
from tests.sources.pods.pod_objects import raw_pod, raw_status, spec_requesting
from tests.support.kube import ApiServer, Collection

POINTS: Final = 5.0
"""Maximum difference of the mean utilisation, in percent of the GPU's time."""
MEBIBYTES: Final = 1.0
"""Maximum difference of the memory."""
WORK: Final = (("work", "0.2", "1"), ("work", "0.5", "2"), ("hold", "512"))
"""What the process of each pod does."""
PLAYED: Final = ((20, 300), (50, 700), (0, 512))
"""Utilisation in percent and memory in MiB of the simulated processes."""
COUNTERS: Final = """\
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
"""
UTIL, USED, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"
TASKS: Final = tuple(map(Task, TENANTS, (0.2, 0.5, 0.0)))
"""The same, in a cluster."""

Mode: TypeAlias = Literal["processes", "played", "cluster"]

Figures = dict[str, dict[str, float]]
"""Values by metric and pod; the device's own series has an empty name."""


class KubernetesNode:
    """Pods of a real Kubernetes node, with real work."""

    proc = Path("/proc")

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        works = RealWorks(folder)
        kube = ends.enter_context(Cluster())
        kube.plugin([f"{works.gpu}::{at}" for at in range(len(TASKS))], substitute=physical)
        self.socket, self.name = kube.pod_resources_socket, kube.node
        access.service_account(kube.api, "podgpu", [access.rule(["pods"], ["list", "watch"])])
        token = access.token(kube.api, "podgpu")
        self.kubeconfig = access.kubeconfig(folder / "kubeconfig", kube.api, token=token)
        self.uids = works.start(kube, TASKS)
        ends.callback(works.end, kube, TASKS)
        of_uid = {driver_state.pod_of(pid): pid for pid in driver_state.processes()[works.gpu]}
        self.pids = {name: of_uid[uid] for name, uid in self.uids.items()}


class FakeNode:
    """A kubelet and an API server that report the pods, in a thread of their own."""

    name = "gpu-node"
    uids = UIDS

    def __init__(self, folder: Path, uuid: str, pids: Mapping[str, int], ends: ExitStack) -> None:
        self.proc, self.pids = folder / "proc", pids
        procfs = Procfs(self.proc)
        procfs.pods = {pid: name for name, pid in pids.items()}
        ends.enter_context(procfs.followed())
        self.socket = folder / "kubelet.sock"
        self.kubeconfig = folder / "kubeconfig"
        self._folder, self._uuid = folder, uuid
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        assert self._ready.wait(10), "the fake kubelet and API server do not start"

    async def _serve(self) -> None:
        pods = Collection()
        for name in TENANTS:
            container_id = f"{list(UIDS).index(name):x}" * 64  # as in the copy of procfs
            status = {**raw_status(), "containerID": f"containerd://{container_id}"}
            spec = {**spec_requesting("nvidia.com/gpu", "1"), "nodeName": self.name}
            pods.put(
                raw_pod(name, uid=UIDS[name], spec=spec, status={"containerStatuses": [status]})
            )
        api = ApiServer({"/api/v1/pods": pods})
        async with api.serving(), FakeKubelet(self.socket) as kubelet:
            api.kubeconfig(self.kubeconfig)
            kubelet.pods = [
                pod(name, {"nvidia.com/gpu": [f"{self._uuid}::{at}"]})
                for at, name in enumerate(TENANTS)
            ]
            self._ready.set()
            await asyncio.Event().wait()


Node: TypeAlias = KubernetesNode | FakeNode


def configured(out: Path, port: int, node: Node, env: Mapping[str, str]) -> Path:
    """Write the configuration of dcgm-exporter's command line, with the paths of the fakes."""
    (out / "counters.csv").write_text(COUNTERS)
    words = ["-f", str(out / "counters.csv"), "-k", "--kubernetes-virtual-gpus", "-d", "g:0"]
    words += ["--pod-resources-kubelet-socket", str(node.socket), "-c", "1000"]
    words += ["-a", f"127.0.0.1:{port}", "--print-config"]
    command = [sys.executable, "-m", "podgpu", "dcgm-exporter", *words]
    printed = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, timeout=60, env={**os.environ, **env}
    )
    config = yaml.safe_load(printed.stdout)
    config["sources"]["gpus"] |= {"proc": str(node.proc)}
    config["sources"]["pods"]["kubeconfig"] = str(node.kubeconfig)
    path = out / "podgpu.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def page(port: int, uids: Mapping[str, str]) -> Figures:
    """Return the values of the page by pod; fail if a pod has several."""
    found: Figures = defaultdict(dict)
    text = get(port, "/metrics").body.decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name in (UTIL, USED, POWER) else ():
            name = sample.labels["pod"]
            assert name not in found[family.name], f"{family.name} has two series of {name!r}"
            found[family.name][name] = sample.value
            if name and family.name != POWER:
                assert sample.labels["pod_uid"] == uids[name], sample.labels
    return found


class Smi:
    """Reads the GPU with nvidia-smi."""

    def utilization(self, pids: Sequence[int], seconds: int) -> dict[int, float]:
        """Return the mean of `sm` of `nvidia-smi pmon`, by pid; takes `seconds`."""
        words = ["nvidia-smi", "pmon", "-i", "0", "-s", "u", "-d", "1", "-c", str(seconds)]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds + 60
        )
        lines = done.stdout.splitlines()
        columns = next(line for line in lines if line.startswith("#")).lstrip("# ").split()
        values: dict[int, float] = dict.fromkeys(pids, 0.0)
        for line in lines:
            row = dict(zip(columns, line.split(), strict=False))
            if row.get("pid", "").isdecimal() and int(row["pid"]) in values and row["sm"] != "-":
                values[int(row["pid"])] += float(row["sm"])
        return {pid: total / seconds for pid, total in values.items()}

    def memory(self) -> dict[int, float]:
        """Return the memory of each process in MiB."""
        words = ["nvidia-smi", "-i", "0", "--query-compute-apps=pid,used_memory"]
        words.append("--format=csv,noheader,nounits")
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        rows = [line.split(",") for line in done.stdout.splitlines()]
        return {int(pid): float(memory) for pid, memory in rows}


class PlayedSmi(Smi):
    """Reads the same from a simulated driver, which nvidia-smi cannot use."""

    def utilization(self, pids: Sequence[int], seconds: int) -> dict[int, float]:
        since = int(time.time() * 1e6)
        time.sleep(seconds)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        entries = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
        return dict.fromkeys(pids, 0.0) | {one.pid: float(one.smUtil) for one in entries}

    def memory(self) -> dict[int, float]:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return {one.pid: one.usedGpuMemory / (1 << 20) for one in listed}


def _is_written(output: Path) -> bool:
    return output.stat().st_size > 0


def started(out: Path, ends: ExitStack) -> dict[str, int]:
    """Start the process of each pod; return the pids."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    pids = {}
    for name, words in zip(TENANTS, WORK, strict=True):
        output = out / f"{name}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, kernels.__file__, *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=env,
            )
        ends.callback(ended, process)
        wait_until(partial(_is_written, output), f"{name} works", 60)
        pids[name] = process.pid
    return pids


def played(out: Path, ends: ExitStack) -> tuple[FakeNvml, dict[str, int]]:
    """Start idle processes; return a simulated driver that shows them as working."""
    processes = [subprocess.Popen(["sleep", "600"]) for _ in TENANTS]
    for process in processes:
        ends.callback(ended, process)
    pids = [process.pid for process in processes]
    total = sum(memory for _, memory in PLAYED)
    scenario = h100s(
        1,
        values={"energy": Ramp(5_000_000, 300_000), "memory_used": (total + 1000) << 20},
        processes=[Proc(pid, memory << 20) for pid, (_, memory) in zip(pids, PLAYED, strict=True)],
        loads=[Load(pid, busy) for pid, (busy, _) in zip(pids, PLAYED, strict=True) if busy],
    )
    return FakeNvml(scenario, out), dict(zip(TENANTS, pids, strict=True))


def faults(smi: Mapping[str, Mapping[str, float]], ours: Figures, last: Figures) -> list[str]:
    """Return what differs.

    Args:
        smi: nvidia-smi's utilisation and memory, by metric and pod.
        ours: podgpu's mean values.
        last: podgpu's last page.
    """
    found = []
    for metric, limit in ((UTIL, POINTS), (USED, MEBIBYTES)):
        for name, value in smi[metric].items():
            shown = ours[metric].get(name)
            if shown is None or abs(shown - value) > limit:
                found.append(f"{metric} of {name} is {shown}, nvidia-smi says {value}")
        if "" not in last[metric]:
            found.append(f"{metric} has no series of the device")
    for metric, most in ((UTIL, 100.0), (USED, last[USED].get("", 0.0))):
        total = sum(value for name, value in last[metric].items() if name)
        if total > most + MEBIBYTES:
            found.append(f"{metric} of all pods is {total}, more than {most}")
    if last[UTIL].get(TENANTS[-1]) != 0:
        found.append(f"the idle pod has {last[UTIL].get(TENANTS[-1])} % utilisation")
    if sorted(last[POWER]) != sorted(TENANTS) or len(set(last[POWER].values())) != 1:
        found.append(f"{POWER} is no copy for each pod: {last[POWER]}")
    return found


def compare(out: Path, seconds: int, mode: Mode, ends: ExitStack) -> list[str]:
    """Run everything, print the figures, and return what differs."""
    env: Mapping[str, str] = {}
    smi = Smi()
    pids: Mapping[str, int] = {}
    if mode == "played":
        fake, pids = played(out, ends)
        fake.load_in_process()
        env, smi = fake.env(), PlayedSmi()
    elif mode == "processes":
        pids = started(out, ends)
    pynvml.nvmlInit()
    uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    node = KubernetesNode(out, ends) if mode == "cluster" else FakeNode(out, uuid, pids, ends)
    pids, (port,) = node.pids, free_ports(1)
    with (out / "podgpu.log").open("wb") as log:
        podgpu = subprocess.Popen(
            [sys.executable, "-m", "podgpu", "run", "-c", configured(out, port, node, env)],
            stderr=log,
            env={**os.environ, **env, "NODE_NAME": node.name},
        )
    ends.callback(ended, podgpu)

    def complete() -> bool:
        try:
            return len(page(port, node.uids).get(UTIL, {})) == 1 + len(TENANTS)
        except OSError:
            return False

    wait_until(complete, "a page with the utilisation of each pod", 60)
    pages: list[Figures] = []
    measured: dict[int, float] = {}
    thread = threading.Thread(
        target=lambda: measured.update(smi.utilization(list(pids.values()), seconds))
    )
    thread.start()
    time.sleep(5)  # a usage sample covers the last five seconds
    while thread.is_alive():
        pages.append(page(port, node.uids))
        thread.join(1)
    memory = smi.memory()
    pages.append(page(port, node.uids))
    ours: Figures = {
        metric: {
            name: mean(values)
            for name in TENANTS
            if (values := [one[metric][name] for one in pages if name in one[metric]])
        }
        for metric in (UTIL, USED)
    }
    theirs = {
        UTIL: {name: round(measured[pid], 2) for name, pid in pids.items()},
        USED: {name: memory.get(pid, 0.0) for name, pid in pids.items()},
    }
    last = pages[-1]
    (out / "page.txt").write_text(get(port, "/metrics").body.decode())
    figures = {"nvidia-smi": theirs, "podgpu": ours, "last page": last, "pages": len(pages)}
    (out / "figures.json").write_text(json.dumps(figures, indent=1))
    print(f"{'pod':8} {'util: pmon':>12} {'podgpu':>8} {'MiB: apps':>12} {'podgpu':>8}")
    for name in TENANTS:
        row = (theirs[UTIL][name], ours[UTIL].get(name), theirs[USED][name], ours[USED].get(name))
        shown = ["-" if value is None else f"{value:.2f}" for value in row]
        print(f"{name:8} {shown[0]:>12} {shown[1]:>8} {shown[2]:>12} {shown[3]:>8}")
    print(f"{'device':8} {'':>12} {last[UTIL].get('', -1):>8.2f} {'':>12} {last[USED]['']:>8.2f}")
    return faults(theirs, ours, last)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=40, help="of comparison")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--played", dest="mode", action="store_const", const="played", help="simulate the GPU"
    )
    modes.add_argument(
        "--cluster", dest="mode", action="store_const", const="cluster", help="with real pods"
    )
    arguments: Any = parser.parse_args()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ends:
        found = compare(out, arguments.seconds, arguments.mode or "processes", ends)
    print("wrong:", "; ".join(found) or "nothing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
