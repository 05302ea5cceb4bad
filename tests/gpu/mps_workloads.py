"""Processes with MPS: the server, its clients, their procfs, and NVML's view of them."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pynvml

from tests.e2e.processes import wait_until
from tests.fakes.nvml import FakeNvml, Load, Proc, Ramp, h100s
from tests.gpu import kernels
from tests.gpu.usage import finished

GPU: Final = 0
SERVER_POD, PLAIN = "mps-daemon", "plain"
TENANTS: Final = ("one", "two", "three")
UIDS: Final = {
    pod: f"00000000-0000-4000-8000-00000000000{number}"
    for number, pod in enumerate((SERVER_POD, PLAIN, *TENANTS))
}
MEBIBYTES: Final = 64


class Procfs:
    """A copy of procfs for the processes on the GPU, with cgroups of pods.

    Args:
        root: folder to create.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pods: dict[int, str] = {}
        self._stop = threading.Event()
        for name in ("self", "1"):
            (root / name).mkdir(parents=True)
        (root / "self/status").write_text(Path("/proc/self/status").read_text())
        (root / "1/cgroup").write_text("0::/init.scope\n")
        self._mirror(1)

    def follow(self) -> None:
        """Update the copy until it is stopped."""
        while not self._stop.wait(0.05):
            (self.root / "uptime").write_text(Path("/proc/uptime").read_text())
            for pid, pod in list(self.pods.items()):
                folder = self.root / str(pid)
                if not Path(f"/proc/{pid}/stat").exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    continue
                folder.mkdir(exist_ok=True)
                number = f"{list(UIDS).index(pod):x}" * 64
                (folder / "cgroup").write_text(f"0::/kubepods/pod{UIDS[pod]}/{number}\n")
                self._mirror(pid)

    def _mirror(self, pid: int) -> None:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        new = self.root / f"{pid}.new"
        new.write_text(text)
        new.replace(self.root / str(pid) / "stat")

    @contextmanager
    def followed(self) -> Iterator[None]:
        thread = threading.Thread(target=self.follow)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


class Works(Protocol):
    """Processes on the GPU.

    Attributes:
        env: environment variables for readers of NVML.
    """

    env: Mapping[str, str]

    def plain(self) -> int:
        """Start a process that works without MPS, and return its pid."""

    def end(self, pids: Sequence[int]) -> None:
        """Stop processes."""

    def mps(self) -> tuple[int, list[int]]:
        """Start MPS and its clients, and return the pids of the server and the clients."""

    def truth(self, pids: Sequence[int], begin: float, end: float) -> dict[int, float]:
        """Return the fraction of the time that each process' work would need without other load."""


class RealWorks:
    """Real work on the GPU and real MPS.

    Args:
        out: folder for output of processes.
        ends: stack with the cleanup.
    """

    env: Mapping[str, str] = {}

    def __init__(self, out: Path, ends: ExitStack) -> None:
        self._out, self._ends = out, ends
        self._processes: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}
        self._mps: dict[str, str] = {}
        self._alone = float(self._run("solo", "2"))

    def _run(self, *words: str) -> bytes:
        command = [sys.executable, kernels.__file__, *words]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout

    def _start(self, name: str, env: Mapping[str, str]) -> int:
        output = self._out / f"{name}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, kernels.__file__, "work", "1", str(len(self._processes) + 1)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
            )
        self._processes[process.pid] = process, output
        self._ends.callback(self.end, [process.pid])

        def begun() -> bool:
            assert process.poll() is None, f"{name} has ended: {output.read_text()[-2000:]}"
            return output.stat().st_size > 0

        wait_until(begun, f"{name} works", 40)
        return process.pid

    def plain(self) -> int:
        return self._start(PLAIN, {})

    def end(self, pids: Sequence[int]) -> None:
        for pid in pids:
            process, _ = self._processes[pid]
            if process.poll() is None:
                # Not killed, because that could also end the MPS server.
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)

    def mps(self) -> tuple[int, list[int]]:
        control = shutil.which("nvidia-cuda-mps-control")
        assert control, "nvidia-cuda-mps-control is missing; it is part of the driver"
        folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
        self._ends.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "pipe").mkdir()
        logs = self._out / "mps"
        logs.mkdir(exist_ok=True)
        self._mps = {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(logs),
        }
        env = {**os.environ, **self._mps}
        daemon = subprocess.Popen([control, "-f"], env=env)
        self._ends.callback(ended, daemon)

        def ask(question: str, within: float = 15) -> str:
            done = subprocess.run(
                [control],
                input=question,
                env=env,
                text=True,
                capture_output=True,
                check=False,
                timeout=within,
            )
            print(f"mps-control {question!r}: {done.stdout.strip()} {done.stderr.strip()}")
            return done.stdout

        wait_until((folder / "pipe/control").exists, "MPS control", 15)
        self._ends.callback(ask, "quit -t 5\n", 20)
        try:
            clients = [self._start(pod, self._mps) for pod in TENANTS]
        finally:
            for log in sorted(logs.iterdir()):
                print(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}")
        servers = [int(word) for word in ask("get_server_list\n").split() if word.isdecimal()]
        for server in servers:
            ask(f"get_client_list {server}\n")
        assert len(servers) == 1, servers
        return servers[0], clients

    def truth(self, pids: Sequence[int], begin: float, end: float) -> dict[int, float]:
        found = {}
        for pid in pids:
            lines = [one.split() for one in self._processes[pid][1].read_text().splitlines()[:-1]]
            progress = [(float(moment), int(done)) for moment, done in lines]
            found[pid] = finished(progress, begin, end) * self._alone / (end - begin)
        return found


class PlayedWorks:
    """Idle processes that a scenario shows as working.

    Args:
        out: folder for the scenario, and for a program with the server's name.
        ends: stack with the cleanup.
    """

    def __init__(self, out: Path, ends: ExitStack) -> None:
        self._ends = ends
        self._began = time.monotonic()
        self._values = {"energy": Ramp(5_000_000, 300_000), "memory_used": 2 << 30}
        self.fake = FakeNvml(h100s(1, values=self._values), out)
        self.env: Mapping[str, str] = self.fake.env()
        self._server = out / "nvidia-cuda-mps-server"
        shutil.copy(shutil.which("sleep") or "/bin/sleep", self._server)

    def _sleep(self, program: str | Path) -> int:
        process = subprocess.Popen([program, "600"])
        self._ends.callback(ended, process)
        return process.pid

    def _play(self, procs: Sequence[Proc], busy: int | None) -> None:
        begin = time.monotonic() - self._began
        loads = [] if busy is None else [Load(busy, 100, start=begin)]
        self.fake.set(h100s(1, values=self._values, processes=procs, loads=loads))

    def plain(self) -> int:
        pid = self._sleep("sleep")
        self._play([Proc(pid, MEBIBYTES << 20)], pid)
        return pid

    def end(self, pids: Sequence[int]) -> None:
        self._play([], None)

    def mps(self) -> tuple[int, list[int]]:
        server, clients = self._sleep(self._server), [self._sleep("sleep") for _ in TENANTS]
        listed = [
            Proc(pid, MEBIBYTES << 20, kind) for pid in clients for kind in ("compute", "mps")
        ]
        self._play([Proc(server, MEBIBYTES << 20), *listed], server)
        return server, clients

    def truth(self, pids: Sequence[int], begin: float, end: float) -> dict[int, float]:
        return dict.fromkeys(pids, 1 / 3)


def ended(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


class Driver:
    """NVML's view of the GPU, with pynvml."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(GPU)
        self._since = int(time.time() * 1e6)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self._handle))

    def says(self) -> dict[str, Any]:
        """Return process lists, and utilisation by process since the last call."""
        lists = {
            kind: {one.pid: one.usedGpuMemory for one in self._asked(name)}
            for kind, name in (
                ("compute", "nvmlDeviceGetComputeRunningProcesses"),
                ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
                ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
            )
        }
        entries = self._asked("nvmlDeviceGetProcessUtilization", self._since)
        fresh = [one for one in entries if one.timeStamp > self._since]
        utilisation = [
            {"pid": e.pid, "sm": e.smUtil, "seconds": (e.timeStamp - self._since) / 1e6}
            for e in fresh
        ]
        self._since = max([self._since, *(int(one.timeStamp) for one in fresh)])
        pids = {pid for found in lists.values() for pid in found} | {e["pid"] for e in utilisation}
        return {
            "lists": lists,
            "entries": utilisation,
            "utilisation": self._one("nvmlDeviceGetUtilizationRates", "gpu"),
            "compute_mode": str(pynvml.nvmlDeviceGetComputeMode(self._handle)),
            "processes": {pid: _known(pid) for pid in sorted(pids)},
        }

    def _asked(self, name: str, *arguments: object) -> list[Any]:
        try:
            return list(getattr(pynvml, name)(self._handle, *arguments))
        except pynvml.NVMLError as error:
            if not isinstance(error, pynvml.NVMLError_NotFound):
                print(f"{name}: {error}")
            return []

    def _one(self, name: str, member: str) -> Any:
        try:
            return getattr(getattr(pynvml, name)(self._handle), member)
        except pynvml.NVMLError as error:
            return str(error)


def _known(pid: int) -> dict[str, str]:
    found = {}
    for name in ("comm", "cmdline", "cgroup"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
        except OSError as error:
            text = str(error)
        found[name] = text.replace("\0", " ").strip()[:300]
    return found
