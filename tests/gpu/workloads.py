"""Pods of known work on one GPU: real or simulated."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import GPU, container, pod
from tests.e2e.processes import wait_until
from tests.fakes.nvml import FakeNvml, Gpm, Load, Proc, Ramp, Scenario, h100s
from tests.gpu import driver_state, kernels
from tests.gpu.programs import python
from tests.gpu.usage import finished

MIB = 1 << 20
_THERE = "/podgpu/kernels.py"
_CUBIN = "/podgpu/kernels.cubin"


@dataclass(frozen=True, slots=True)
class Task:
    """The work of a pod.

    Attributes:
        name: name of the pod.
        duty: the fraction of the time for which it works; at 0 it only allocates memory.
        claims: whether it requests the GPU from the kubelet.
        faults: whether it writes to an invalid address and ends.
    """

    name: str
    duty: float = 0.0
    claims: bool = True
    faults: bool = False

    @property
    def wanted(self) -> Mapping[str, int]:
        """The requested resources."""
        return {GPU: 1} if self.claims else {}


class Works(Protocol):
    """The environment in which pods work.

    Attributes:
        scenario: the simulated GPUs; None for those of the machine.
        env: environment variables for readers of NVML.
        gpu: uuid of the GPU.
        alone: seconds of one pass without other load.
    """

    scenario: Scenario | None
    env: Mapping[str, str]
    gpu: str
    alone: float

    def start(self, kube: Cluster, tasks: Sequence[Task]) -> dict[str, str]:
        """Start pods and wait until each works; return their uids by name."""

    def share(self, kube: Cluster, task: Task, begin: float, end: float) -> float:
        """Return the fraction of the time between two times for which a pod kept the GPU busy."""

    def end(self, kube: Cluster, tasks: Sequence[Task]) -> None:
        """Remove pods."""


class RealWorks:
    """Real work on the machine's GPU.

    Args:
        folder: folder for a file that pods mount.
    """

    scenario: Scenario | None = None
    env: Mapping[str, str] = MappingProxyType({})

    def __init__(self, folder: Path) -> None:
        self.gpu = next(iter(driver_state.gpus()))
        self._files = {_THERE: Path(kernels.__file__)}
        self._env: dict[str, str] = {}
        if cubin := compiled(folder):
            self._files[_CUBIN] = cubin
            self._env["CUBIN"] = _CUBIN
        output = subprocess.run(
            [sys.executable, kernels.__file__, "solo", "3"],
            env={**os.environ, **({"CUBIN": str(cubin)} if cubin else {})},
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        self.alone = float(output.stdout)

    def start(self, kube: Cluster, tasks: Sequence[Task]) -> dict[str, str]:
        uids = {
            task.name: kube.create(self._manifest(task, seed))["metadata"]["uid"]
            for seed, task in enumerate(tasks, 1)
        }
        for task in tasks:

            def begun(task: Task = task) -> bool:
                output = kube.pod_log(task.name)
                phase = kube.api.pod(task.name)["status"].get("phase")
                assert phase != "Failed" or task.faults, output[-2000:]
                return bool(_passes(output))

            wait_until(begun, f"{task.name} has begun", 60)
        return uids

    def _manifest(self, task: Task, seed: int) -> Object:
        words = f"work {task.duty:g} {seed}" if task.duty else "hold 1024"
        words = "fault" if task.faults else words
        # Not with the plugin's variable, because one pod has no allocation.
        script = (
            f"export CUDA_VISIBLE_DEVICES={self.gpu}; trap 'exit 0' TERM; "
            f"{sys.executable} {_THERE} {words} & wait $!"
        )
        return python(task.name, script, self._files, task.wanted, self._env)

    def share(self, kube: Cluster, task: Task, begin: float, end: float) -> float:
        if not task.duty:
            return 0.0
        return finished(_passes(kube.pod_log(task.name)), begin, end) * self.alone / (end - begin)

    def end(self, kube: Cluster, tasks: Sequence[Task]) -> None:
        remove(kube, tasks)


def remove(kube: Cluster, tasks: Sequence[Task]) -> None:
    """Delete pods together, and wait until they are gone."""
    for task in tasks:
        kube.api.delete("Pod", task.name, "default")
    for task in tasks:
        kube.api.wait_gone("Pod", task.name, "default")


def _passes(output: str) -> list[tuple[float, int]]:
    """Return times and numbers of finished passes."""
    pairs = [line.split() for line in output.splitlines()]
    return [(float(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and _number(pair[0])]


def _number(word: str) -> bool:
    return word.replace(".", "", 1).isdecimal()


def compiled(folder: Path) -> Path | None:
    """Compile the kernels if ptxas is installed."""
    program = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if program is None:
        return None
    source, made = folder / "kernels.ptx", folder / "kernels.cubin"
    source.write_text(kernels.PTX)
    done = subprocess.run([program, "-arch=sm_90", "-o", made, source], check=False, timeout=60)
    return made if done.returncode == 0 else None


class PlayedWorks:
    """Simulated work: the pods sleep, and a scenario shows their processes as working.

    Args:
        folder: folder of the scenario's file.
    """

    alone = 0.0

    @staticmethod
    def node() -> Scenario:
        """Return a node with one GPU in use."""
        values = {"energy": Ramp(5_000_000, 300_000), "memory_used": 2048 * MIB}
        return h100s(1, values=values, gpm={1: Gpm(55.0)})

    def __init__(self, folder: Path) -> None:
        self._began = time.monotonic()
        self._node = replace(self.node(), t0=self._began)
        self.scenario: Scenario | None = self._node
        self.gpu = self._node.gpus[0].uuid
        self.fake = FakeNvml(self._node, folder)
        self.env: Mapping[str, str] = self.fake.env()
        self._there: dict[str, tuple[Proc, Load]] = {}

    def _play(self) -> None:
        procs = [proc for proc, _ in self._there.values()]
        loads = [load for _, load in self._there.values() if load.percent]
        self.fake.set(self._node.with_gpu(0, processes=procs, loads=loads))

    def start(self, kube: Cluster, tasks: Sequence[Task]) -> dict[str, str]:
        uids = {}
        for task in tasks:
            made = kube.run(pod(task.name, container(resources=task.wanted)))
            uid = uids[task.name] = made["metadata"]["uid"]
            pid = wait_until(partial(_shell, uid), f"{task.name} has a process")
            load = Load(pid, 100 * task.duty, start=time.monotonic() - self._began)
            self._there[task.name] = Proc(pid, 512 * MIB), load
        self._play()
        for _ in filter(lambda task: task.faults, tasks):
            self.fake.push_xid(0, 31)
        return uids

    def share(self, _kube: Cluster, task: Task, _begin: float, _end: float) -> float:
        return task.duty

    def end(self, kube: Cluster, tasks: Sequence[Task]) -> None:
        remove(kube, tasks)
        for task in tasks:
            self._there.pop(task.name, None)
        self._play()


def _shell(uid: str) -> int | None:
    """Return the first process of a pod's container, which is a shell, unlike the sandbox."""
    for folder in Path("/proc").iterdir():
        try:
            mine = folder.name.isdecimal() and driver_state.pod_of(int(folder.name)) == uid
            if mine and (folder / "cmdline").read_bytes().startswith(b"/bin/sh"):
                return int(folder.name)
        except OSError:
            continue
    return None
