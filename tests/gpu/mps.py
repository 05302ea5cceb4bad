"""Holds podgpu's accounts against a real MPS server with three clients that saturate the GPU.

    python3 -m tests.gpu.mps --out DIR [--seconds 24] [--played]

Needs a GPU, root, and the driver's nvidia-cuda-mps-control; no torch, no network. It changes no
setting of the GPU, the compute mode included. MPS has folders of its own, and ends with the script.
`--played` lets a scenario play the GPU, and idle processes the server and its clients.

The processes are in pods by a procfs of the script's own: what the kernel says of each, but for the
cgroup. First one process works without MPS, then three clients of MPS do. Writes what NVML says,
pages, log and ledger to DIR, prints what is needed to understand a failure, and says at the end
what was wrong; then its status is 1. It ends within three minutes.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol

import pynvml
import yaml

from tests.e2e.processes import free_ports, wait_until
from tests.fakes.nvml import FakeNvml, Load, Proc, Ramp, h100s
from tests.gpu import kernels
from tests.gpu.node import Report
from tests.gpu.pages import Page, next_look
from tests.gpu.usage import finished

LONGEST: Final = 170
"""Seconds after which the script gives up."""
GPU: Final = 0
SERVER_POD, PLAIN = "mps-daemon", "plain"
TENANTS: Final = ("one", "two", "three")
UIDS: Final = {
    pod: f"00000000-0000-4000-8000-00000000000{number}"
    for number, pod in enumerate((SERVER_POD, PLAIN, *TENANTS))
}
MEBIBYTES: Final = 64
ACCOUNTS: Final = ("busy_seconds_total", "energy_joules_total")


class Procfs:
    """What the kernel says of the processes on the GPU, with the cgroups of pods.

    Args:
        root: its folder, which is made.
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
        """Follow the processes until it is stopped."""
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
    """What runs on the GPU.

    Attributes:
        env: variables of those that read NVML.
    """

    env: Mapping[str, str]

    def plain(self) -> int:
        """Start a process that works without MPS; return its pid."""

    def end(self, pids: Sequence[int]) -> None:
        """End processes."""

    def mps(self) -> tuple[int, list[int]]:
        """Start MPS and its clients; return the pids of the server and of the clients."""

    def truth(self, pids: Sequence[int], begin: float, end: float) -> dict[int, float]:
        """Return how much of the time each process' work takes alone."""


class RealWorks:
    """Kernels on the GPU, and MPS.

    Args:
        out: for what processes say.
        ends: what is to be undone at the end.
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
        said = self._out / f"{name}.txt"
        with said.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, kernels.__file__, "work", "1", str(len(self._processes) + 1)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
            )
        self._processes[process.pid] = process, said
        self._ends.callback(self.end, [process.pid])

        def begun() -> bool:
            assert process.poll() is None, f"{name} has ended: {said.read_text()[-2000:]}"
            return said.stat().st_size > 0

        wait_until(begun, f"{name} works", 40)
        return process.pid

    def plain(self) -> int:
        return self._start(PLAIN, {})

    def end(self, pids: Sequence[int]) -> None:
        for pid in pids:
            process, _ = self._processes[pid]
            if process.poll() is None:
                # Not killed: a client of MPS that is may take the server with it.
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)

    def mps(self) -> tuple[int, list[int]]:
        control = shutil.which("nvidia-cuda-mps-control")
        assert control, "nvidia-cuda-mps-control isn't here: it comes with the driver"
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
        self._ends.callback(_ended, daemon)

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

        wait_until((folder / "pipe/control").exists, "MPS is controlled", 15)
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
            told = [(float(moment), int(done)) for moment, done in lines]
            found[pid] = finished(told, begin, end) * self._alone / (end - begin)
        return found


class PlayedWorks:
    """Idle processes, of which a scenario says that they work.

    Args:
        out: for the scenario, and a program of the server's name.
        ends: what is to be undone at the end.
    """

    def __init__(self, out: Path, ends: ExitStack) -> None:
        self._ends = ends
        self._began = time.monotonic()
        self._values = {"energy": Ramp(5_000_000, 300_000), "memory_used": 2 << 30}
        self._fake = FakeNvml(h100s(1, values=self._values), out)
        self.env: Mapping[str, str] = self._fake.env()
        self._server = out / "nvidia-cuda-mps-server"
        shutil.copy(shutil.which("sleep") or "/bin/sleep", self._server)

    def _sleep(self, program: str | Path) -> int:
        process = subprocess.Popen([program, "600"])
        self._ends.callback(_ended, process)
        return process.pid

    def _play(self, procs: Sequence[Proc], busy: int | None) -> None:
        begin = time.monotonic() - self._began
        loads = [] if busy is None else [Load(busy, 100, start=begin)]
        self._fake.set(h100s(1, values=self._values, processes=procs, loads=loads))

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


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


class Driver:
    """What NVML says of the GPU, by pynvml alone."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(GPU)
        self._since = int(time.time() * 1e6)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self._handle))

    def says(self) -> dict[str, Any]:
        """Return its lists, and utilisation by process since this was last called."""
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
        told = [
            {"pid": e.pid, "sm": e.smUtil, "seconds": (e.timeStamp - self._since) / 1e6}
            for e in fresh
        ]
        self._since = max([self._since, *(int(one.timeStamp) for one in fresh)])
        pids = {pid for found in lists.values() for pid in found} | {e["pid"] for e in told}
        return {
            "lists": lists,
            "entries": told,
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


def configured(out: Path, port: int, uuid: str) -> Path:
    """Write podgpu's configuration: three pods hold the GPU; processes are in pods by their uid."""
    held = [
        {"name": pod, "namespace": "ml", "container": "main", "gpu_list": [uuid]} for pod in TENANTS
    ]
    (out / "podlist.json").write_text(json.dumps(held))
    gpus = {
        "kind": "nvml",
        "interval": "1s",
        "usage_interval": "2s",
        "devices": f"g:{GPU}",
        "proc": str(out / "proc"),
    }
    config = {
        "node": "gpu-node",
        "sources": {
            "gpus": gpus,
            "list": {"kind": "podlist", "path": str(out / "podlist.json")},
        },
        "sinks": {
            "page": {"kind": "prometheus", "listen": f"127.0.0.1:{port}"},
            "ledger": {"kind": "ledger", "path": str(out / "ledger.db"), "commit_interval": "1s"},
            "lines": {"kind": "jsonl", "path": str(out / "lines.jsonl")},
        },
    }
    path = out / "podgpu.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def series(page: Page, family: str) -> dict[str, Decimal]:
    """Return the values of a containers' family by pod: by the name, or by the uid's name."""
    names = {uid: pod for pod, uid in UIDS.items()}
    found = {}
    for (name, pairs), value in page.samples.items():
        if name == f"podgpu_container_{family}":
            labels = dict(pairs)
            whose = names.get(labels.get("pod_uid", ""), "")
            found[whose or f"holder {labels['pod']}"] = value
    return found


def phase(
    name: str,
    port: int,
    driver: Driver,
    works: Works,
    pids: Sequence[int],
    *,
    seconds: float,
    out: Path,
) -> dict[str, Any]:
    """Let it all work for a while; return what NVML says and what podgpu shows of it."""
    driver.says()
    time.sleep(3)
    before = next_look(port)
    end, said = time.monotonic() + seconds, []
    while time.monotonic() < end:
        time.sleep(3)
        said.append(driver.says())
    after = next_look(port)
    (out / f"nvml-{name}.json").write_text(json.dumps(said, indent=1))
    (out / f"page-{name}.txt").write_text(after.text)
    passed = after.at - before.at
    device = {
        what: float(after.of_device(family) - before.of_device(family))
        for what, family in (
            ("busy", "podgpu_device_busy_seconds_total"),
            ("energy", "podgpu_device_unattributed_energy_joules_total"),
            ("busy_of_nobody", "podgpu_device_unattributed_busy_seconds_total"),
        )
    }
    families = (*ACCOUNTS, "held_seconds_total", "memory_used_bytes")
    return {
        "seconds": round(passed, 2),
        "nvml": said[-1],
        "work": works.truth(pids, before.at, after.at),
        "device": device,
        "containers": {
            one: {w: float(v) for w, v in series(after, one).items()} for one in families
        },
    }


def plain_faults(found: Mapping[str, Any]) -> Iterator[str]:
    busy = found["containers"]["busy_seconds_total"].get(PLAIN)
    if not busy or busy < found["seconds"] / 2:
        yield f"without MPS {PLAIN} was busy for {busy} s of {found['seconds']}"


def mps_faults(
    found: Mapping[str, Any], server: int, clients: Sequence[int], before: Mapping[str, Any]
) -> Iterator[str]:
    listed = found["nvml"]["lists"]
    if not set(clients) <= set(listed["mps"]):
        yield f"NVML's list of MPS clients is {listed['mps']}, without some of {clients}"
    if found["nvml"]["processes"].get(server, {}).get("comm") != "nvidia-cuda-mps":
        yield f"the server {server} isn't known by its name: {found['nvml']['processes']}"
    for family in ACCOUNTS:
        for pod, value in found["containers"][family].items():
            if pod == PLAIN:
                if value < before["containers"][family].get(PLAIN, 0):
                    yield f"{family} of {PLAIN} fell to {value}"
            elif value == 0 or not pod.startswith("holder"):
                yield f"{pod} has {value} {family} under MPS"
    for pod in TENANTS:
        if not found["containers"]["memory_used_bytes"].get(pod):
            yield f"{pod} has no memory"
    busy, nobody = found["device"]["busy"], found["device"]["busy_of_nobody"]
    if busy < 0.8 * found["seconds"]:
        yield f"the device was busy for {busy} s of {found['seconds']}"
    if abs(busy - nobody) > 0.01:
        yield f"of {busy} s busy {nobody} s are unattributed"
    if found["device"]["energy"] <= 0:
        yield "no energy is unattributed"


def reported(out: Path) -> dict[str, Any]:
    """Return what the ledger and the JSON lines say of the containers under MPS."""
    told: dict[str, Any] = {}
    for words in (["--by", "pod", "--format", "csv"], ["--holdings", "--format", "json"]):
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", "usage", "--ledger", str(out / "ledger.db"), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        told[" ".join(words)] = (done.stdout + done.stderr).splitlines()
    holdings = json.loads("\n".join(told.pop("--holdings --format json")))
    uids = {UIDS[pod]: pod for pod in (SERVER_POD, *TENANTS)}
    text = json.dumps(holdings)
    told["holdings"] = holdings if len(text) < 8000 else text[:8000]
    rows = [row for row in _dicts(holdings) if uids.keys() & set(map(str, row.values()))]
    told["faults"] = [
        f"a holding of {row} says {key}"
        for row in rows
        for key, value in row.items()
        if re.search("busy|energy", key) and value is not None
    ]
    if not rows:
        told["faults"].append("the ledger has no holding of a client")
    return told


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for child in children:
        yield from _dicts(child)


def show(
    out: Path, report: Report, ends: ExitStack, seconds: float, *, played: bool
) -> dict[str, Any]:
    """Let it all happen; return which GPU it was."""
    works: Works = PlayedWorks(out, ends) if played else RealWorks(out, ends)
    if isinstance(works, PlayedWorks):
        works._fake.load_in_process()
    driver, procfs, (port,) = Driver(), Procfs(out / "proc"), free_ports(1)
    ends.enter_context(procfs.followed())
    with (out / "podgpu.log").open("wb") as log:
        podgpu = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "run", "-c", configured(out, port, driver.uuid)],
            stderr=log,
            env={**os.environ, **works.env},
        )
    ends.callback(_ended, podgpu)
    wait_until(lambda: _page(port), "podgpu has a page", 30)
    plain = works.plain()
    procfs.pods[plain] = PLAIN
    report.add("plain", lambda: phase(PLAIN, port, driver, works, [plain], seconds=8, out=out))
    works.end([plain])
    server, clients = works.mps()
    procfs.pods.update({server: SERVER_POD, **dict(zip(clients, TENANTS, strict=True))})
    report.add("mps", lambda: phase("mps", port, driver, works, clients, seconds=seconds, out=out))
    found = report.figures
    faults = {
        "plain": lambda: [*plain_faults(found["plain"])],
        "mps": lambda: [*mps_faults(found["mps"], server, clients, found["plain"])],
    }
    for name, find in faults.items():
        report.add(f"{name}_faults", lambda find=find: {"faults": find()})  # type: ignore[misc]
    _ended(podgpu)
    report.add("reported", lambda: reported(out))
    lines = (out / "podgpu.log").read_text().splitlines()
    report.add(
        "log",
        lambda: {
            "lines": lines[-40:],
            "faults": [line for line in lines if "Traceback" in line],
            "status": podgpu.returncode,
        },
    )
    return {"gpu": driver.uuid}


def _page(port: int) -> bool:
    try:
        return bool(Page(port).accounted())
    except OSError:
        return False


def _late(_number: int, _frame: object) -> None:
    raise TimeoutError(f"not through within {LONGEST} s")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=24, help="of work under MPS")
    parser.add_argument("--played", action="store_true", help="by a scenario")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out / "mps.json")
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(LONGEST)
    with ExitStack() as ends:
        ends.callback(signal.alarm, 0)
        report.add(
            "all",
            lambda: show(out, report, ends, arguments.seconds, played=arguments.played),
        )
    faults = [
        f"{name}: {fault}"
        for name, figures in report.figures.items()
        for fault in figures.get("faults", [])
    ]
    faults += [f"{name}: it failed" for name in report.wrong]
    print("wrong:", "; ".join(faults) or "nothing")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
