"""A simulated node with GPUs, a kubelet, an API server, a container runtime and a kernel log."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from tests.demo import board
from tests.demo.board import Board
from tests.demo.cast import Cast, Container, Work
from tests.demo.pod_objects import NODE, identity, raw_pod
from tests.fakes import kubelet
from tests.fakes.nri import FakeRuntime, wire
from tests.fakes.nvml import FakeNvml, Gpu, Load, Mig, Proc, Scenario, slices
from tests.fakes.nvml.topologies import joined, sockets
from tests.sources.kernel.logs import Kmsg
from tests.sources.nvml.fake_procfs import Proc as Procfs
from tests.support.kube import ApiServer, Collection

REPLICAS: Final = 4
"""How many pods may share a GPU that the device plugin offers in replicas."""
GROUPS: Final = ("profiling", "statistics", "links", "health", "limits")
"""Groups of fields that are recorded besides the default ones."""

_FIRST_PID: Final = 410_117
_PODS: Final = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class _Running:
    """A running container.

    Attributes:
        pids: pids of its processes, one for each of its works.
        began: when they began to work, in seconds after the scenario's start.
    """

    container: Container
    pids: Sequence[int]
    began: float


class Node:
    """The node; `play` writes the readings of its GPUs at this moment.

    Args:
        cast: GPUs and pods.
        folder: where its sockets and files are.

    Attributes:
        lost: places of the GPUs that have fallen off the bus.
        hot: places of the GPUs that are throttled because of their temperature.
    """

    def __init__(self, cast: Cast, folder: Path) -> None:
        self.cast, self.folder = cast, folder
        self.lost: set[int] = set()
        self.hot: set[int] = set()
        # Times of the scenario begin before the first reading, so that counters do not begin at 0.
        self._began = time.monotonic() - 60
        self._running: dict[str, _Running] = {}
        self._ended: list[tuple[int, Load]] = []
        self._next_pid = _FIRST_PID
        count = len(self.cast.cards)
        # Four GPUs at each socket, all on NVSwitches.
        self._base = joined(sockets(count, 4), switches=[range(count)])
        self._boards = [Board(card, place) for place, card in enumerate(self.cast.cards)]
        self._migs: list[list[Mig]] = [
            slices(place, *card.instances) for place, card in enumerate(self.cast.cards)
        ]
        self._fake = FakeNvml(replace(self._base, gpus=(), t0=self._began), self.folder)
        self._procfs = Procfs(self.folder / "proc")
        self._procfs.run(1, 1, "0::/init.scope\n", "systemd")
        self._kernel = Kmsg(self.folder / "kmsg")
        self._pods = Collection()
        self._api = ApiServer({_PODS: self._pods})
        self._kubelet = kubelet.FakeKubelet(self.folder / "kubelet.sock")
        self._kubelet.offered = self._offered()
        self._runtime = FakeRuntime(self.folder / "nri.sock")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the kubelet's and the runtime's sockets, and the API server."""
        async with self._kubelet, self._api.serving():
            self._api.kubeconfig(self.folder / "kubeconfig")
            with self._runtime:
                yield
        # A watch of a client that is gone ends with the next event.
        self._pods.bookmark()
        await asyncio.sleep(0.1)
        self._kernel.close()

    def environment(self) -> dict[str, str]:
        """Return the variables with which podgpu loads the simulated NVML."""
        return self._fake.env()

    def configuration(self) -> Path:
        """Write the recorder's configuration, and return its path."""
        folder = self.folder
        proc = str(folder / "proc")
        sources: dict[str, dict[str, Any]] = {
            "gpus": {
                "kind": "nvml",
                "interval": "1s",
                "slow_interval": "5s",
                "usage_interval": "2s",
                "proc": proc,
            },
            "kubelet": {
                "kind": "podresources",
                "interval": "2s",
                "sockets": [str(folder / "kubelet.sock")],
            },
            "pods": {
                "kind": "pods",
                "kubeconfig": str(folder / "kubeconfig"),
                "labels": ["team"],
                "resource_slices": False,
                "resource_claims": False,
            },
            "runtime": {"kind": "nri", "socket": str(folder / "nri.sock")},
            "kernel": {"kind": "kernel", "path": str(folder / "kmsg"), "proc": proc},
            "podlist": {"kind": "podlist", "path": str(folder / "podlist.json")},
        }
        text: dict[str, Any] = {
            "node": NODE,
            "counters": {"also": list(GROUPS)},
            "sources": sources,
            "sinks": {"unused": {"kind": "jsonl", "path": "-"}},
        }
        path = folder / "podgpu.yaml"
        path.write_text(yaml.safe_dump(text, sort_keys=False))
        return path

    # Pods.

    async def start(self, container: Container, *, age: timedelta = timedelta()) -> None:
        """Start a pod: in the API server, the kubelet's list, the runtime, and with processes."""
        uid, key = identity(container)
        pids = range(self._next_pid, self._next_pid + len(container.works))
        self._next_pid += 7 * len(pids)
        began = 0.0 if age else time.monotonic() - self._began
        self._running[container.pod] = _Running(container, pids, began)
        since = datetime.now(UTC) - age
        self._pods.put(self._raw_pod(container, since, "Running"))
        self._list_pods()
        for pid in pids:
            started = time.clock_gettime(time.CLOCK_BOOTTIME) - age.total_seconds()
            cgroup = f"0::/kubepods/pod{uid}/{key}\n"
            self._procfs.run(pid, max(started, 1), cgroup, container.program)
        self.play()
        nodes, visible = self._runtime_devices(container)
        await asyncio.to_thread(
            self._runtime.run,
            wire.pod(container.pod, namespace=container.namespace, uid=uid),
            container.name,
            key=key,
            pid=pids[0] - 1,
            devices=nodes,
            env=visible,
            started=round(since.timestamp() * 1e9),
            created=round(since.timestamp() * 1e9),
        )

    async def end(self, container: Container) -> None:
        """End a pod. It stays in the API server, as succeeded."""
        uid, key = identity(container)
        running = self._running.pop(container.pod)
        ended = time.monotonic() - self._began
        for pid, work in zip(running.pids, running.container.works, strict=True):
            self._procfs.end(pid)
            # The driver keeps the samples of a process that has ended.
            kept = Load(pid, work.busy, running.began, ended)
            self._ended.append((work.place, kept))
        self.play()
        pod = wire.pod(container.pod, namespace=container.namespace, uid=uid)
        await asyncio.to_thread(self._runtime.end, pod, key)
        self._pods.put(self._raw_pod(container, datetime.now(UTC), "Succeeded"))
        self._list_pods()

    def delete(self, container: Container) -> None:
        """Delete a pod from the API server."""
        self._pods.delete(container.namespace, container.pod)

    def _raw_pod(self, container: Container, since: datetime, phase: str) -> dict[str, Any]:
        requests = Counter(self._allocated(container, work)[0] for work in container.works)
        return raw_pod(container, since, phase, {k: n for k, n in requests.items() if k})

    def _list_pods(self) -> None:
        pods = []
        named: list[Mapping[str, object]] = []
        for running in self._running.values():
            container = running.container
            resources: dict[str, list[str]] = {}
            for work in container.works:
                resource, device = self._allocated(container, work)
                if work.access == "file":
                    entry = {"name": container.pod, "namespace": container.namespace}
                    named.append({**entry, "container": container.name, "gpu_list": [device]})
                elif resource:
                    resources.setdefault(resource, []).append(device)
            pods.append(
                kubelet.pod(
                    container.pod,
                    resources,
                    namespace=container.namespace,
                    container=container.name,
                )
            )
        self._kubelet.pods = pods
        text = json.dumps(named)
        path = self.folder / "podlist.json"
        if not path.exists() or path.read_text() != text:
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)

    def _allocated(self, container: Container, work: Work) -> tuple[str, str]:
        """Return resource and device id; the resource is empty if the kubelet allocated nothing."""
        gpu = self._uuid(work.place)
        match work.access:
            case "whole":
                return "nvidia.com/gpu", gpu
            case "replica":
                return "nvidia.com/gpu", f"{gpu}::{self._sharing(work.place).index(container.pod)}"
            case "slice":
                profile = self.cast.cards[work.place].instances[work.instance]
                return f"nvidia.com/mig-{profile}", self._migs[work.place][work.instance].uuid
            case "file" | "none":
                return "", gpu

    def _sharing(self, place: int) -> list[str]:
        return [
            container.pod
            for container in self.cast.pods
            if any(one.place == place and one.access == "replica" for one in container.works)
        ]

    def _offered(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for place, card in enumerate(self.cast.cards):
            if card.instances:
                for profile, mig in zip(card.instances, self._migs[place], strict=True):
                    found.setdefault(f"nvidia.com/mig-{profile}", []).append(mig.uuid)
                continue
            gpu, gpus = self._uuid(place), found.setdefault("nvidia.com/gpu", [])
            shared = bool(self._sharing(place))
            gpus += [f"{gpu}::{number}" for number in range(REPLICAS)] if shared else [gpu]
        return found

    def _runtime_devices(self, container: Container) -> tuple[list[bytes], list[str]]:
        """Return the device nodes and the variable that the runtime reports of a container."""
        given = [work for work in container.works if work.access != "none"]
        if not given:
            return [], []
        names = [self._allocated(container, work)[1].partition("::")[0] for work in given]
        nodes = [wire.gpu_node(work.place) for work in given if work.access != "file"]
        if given[0].access == "slice":
            nodes.append(wire.node("/dev/nvidia-caps/nvidia-cap21", 508, 21))
        return nodes, [f"NVIDIA_VISIBLE_DEVICES={','.join(names)}"]

    # GPUs.

    def xid(self, place: int, code: int, text: str, pod: str = "") -> None:
        """Report an XID error in NVML and the kernel log, there with the process of a pod."""
        process = "pid='<unknown>', name=<unknown>"
        if pod:
            running = self._running[pod]
            process = f"pid={running.pids[0]}, name={running.container.program}"
        self._fake.push_xid(place, code)
        bus = self._base.gpus[place].bus_id.lower()[4:].removesuffix(".0")
        self._kernel.stamp_us = time.monotonic_ns() // 1000
        self._kernel.write(f"NVRM: Xid (PCI:{bus}): {code}, {process}, {text}")

    def is_read(self) -> bool:
        """Return whether a program has read the GPUs."""
        return "nvmlDeviceGetTemperature" in self._fake.subprocess_calls()

    def play(self) -> None:
        """Let the GPUs have the readings of this moment."""
        seconds = time.monotonic() - self._began
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        (self.folder / "proc/uptime").write_text(f"{up:.2f} {up:.2f}\n")
        gpus = [self._gpu(place, seconds) for place in range(len(self.cast.cards))]
        self._fake.set(Scenario(gpus=gpus, t0=self._began))

    def _gpu(self, place: int, seconds: float) -> Gpu:
        base, card = self._base.gpus[place], self.cast.cards[place]
        active = [] if place in self.lost else self._active(place)
        loads = {pid: board.percent(work, seconds, pid) for pid, work in active}
        load = min(sum(loads.values()), 100.0)
        works = [work for _, work in active]
        migs = self._instances(place, active, loads) if card.instances else None
        if migs is not None:
            load = sum(loads[pid] * migs[work.instance].part for pid, work in active)
        values, rings, metrics = self._boards[place].readings(
            seconds, load, board.used(works), hot=place in self.hot
        )
        return replace(
            base,
            name=card.model.name,
            values={**base.values, **values},
            sampled=rings,
            gpm=metrics,
            mig=None if migs is None else [one.mig for one in migs],
            processes=[] if card.instances else [Proc(pid, work.memory) for pid, work in active],
            loads=[*self._loads(loads), *(one for at, one in self._ended if at == place)],
            lost=place in self.lost,
        )

    def _loads(self, percents: Mapping[int, float]) -> list[Load]:
        began = {pid: one.began for one in self._running.values() for pid in one.pids}
        return [Load(pid, percent, began[pid]) for pid, percent in percents.items() if percent]

    def _active(self, place: int) -> list[tuple[int, Work]]:
        return [
            (pid, work)
            for running in self._running.values()
            for pid, work in zip(running.pids, running.container.works, strict=True)
            if work.place == place
        ]

    def _instances(
        self, place: int, active: Sequence[tuple[int, Work]], loads: Mapping[int, float]
    ) -> "list[_Instance]":
        found = []
        for number, mig in enumerate(self._migs[place]):
            own = [(pid, work) for pid, work in active if work.instance == number]
            load = min(sum(loads[pid] for pid, _ in own), 100.0)
            metrics = {k: v for k, v in board.profiling(load).items() if k < 20}
            processes = [Proc(pid, work.memory) for pid, work in own]
            weight = int(self.cast.cards[place].instances[number][0]) / 7
            found.append(_Instance(replace(mig, processes=processes, gpm=metrics), weight))
        return found

    def _uuid(self, place: int) -> str:
        return self._base.gpus[place].uuid


@dataclass(frozen=True, slots=True)
class _Instance:
    """A MIG instance, and its part of the GPU."""

    mig: Mig
    part: float
