"""A podgpu with everything that it reads and writes, and a record of what was simulated."""

import json
import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import trustme
import yaml

from tests.e2e import marks
from tests.e2e.node import PODGPU, hold
from tests.e2e.processes import Process, free_ports, wait_until
from tests.fakes.clock import SetClock
from tests.fakes.nvml import FakeNvml, Gpu, Load, Proc, Ramp, h100s
from tests.soak.grpc_receiver import GrpcReceiver
from tests.soak.receiver import HttpReceiver, Receiver
from tests.support.web import hashed

GPUS: Final = 2
WATTS: Final = 300
BUSY: Final = 40
"""The busy time of each GPU in percent."""

USER, PASSWORD = "soak", "sound"
PODS: Final = ("a", "b", "c")
SAMPLE_INTERVAL: Final = 1.0
"""Seconds between two usage samples, and between two commits of the ledger."""

_SERVING: Final = "podgpu.http: serving "
_STARTED: Final = 36
"""The number of file descriptors of podgpu after its start."""

DISK_MIB: Final = 48
_COUNTERS: Final = (
    "DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation\nDCGM_FI_DEV_POWER_USAGE, gauge, Power\n",
    "DCGM_FI_DEV_POWER_USAGE, gauge, Power\nDCGM_FI_DEV_FB_USED, gauge, Memory\n",
)


@dataclass(slots=True)
class PodgpuRun:
    """One run of podgpu.

    Attributes:
        began, ended: its times on the monotonic clock; `ended` is 0 while it runs.
        killed: whether it ended by SIGKILL.
        disk_full: whether its disk was full at its start or later.
    """

    began: float
    ended: float = 0.0
    killed: bool = False
    disk_full: bool = False


class World:
    """The state that faults and the checker share.

    Args:
        folder: the folder of all files.
        disk: the folder where podgpu writes; a small separate disk if possible.
        chance: the random generator.

    Attributes:
        receivers: the receivers by the name of the sink.
        runs: all runs of podgpu.
        full: whether the disk is full.
        faults: the number of faults.
        breaks: the number of faults that may have prevented a usage sample.
        wrong_busy: seconds for which the driver reported wrong busy times.
        late: seconds for which podgpu could not read the holders of the GPUs.
    """

    def __init__(self, folder: Path, disk: Path, chance: random.Random) -> None:
        self.folder, self.disk, self.chance = folder, disk, chance
        self.lock = threading.RLock()
        self.clock = SetClock(folder / "clock")
        self.receivers: dict[str, Receiver] = {"push": HttpReceiver(), "call": GrpcReceiver()}
        self.log = folder / "podgpu.log"
        (self.port,) = free_ports(1)
        self.runs: list[PodgpuRun] = []
        self.full = False
        self.faults = self.breaks = 0
        self.wrong_busy = self.late = 0.0
        self.holding: list[tuple[float, Mapping[int, str]]] = []
        """The holders of the GPUs according to the podlist, with their start times."""

        self._played: dict[str, Callable[[Gpu], Gpu]] = {}
        self._node: dict[str, Any] = {}
        self._started_ns = 0
        self._process: Process | None = None
        env = {**os.environ, marks.RUN: marks.own()}
        self._worker = subprocess.Popen(["sleep", "infinity"], env=env)
        ramp = Ramp(10**9, WATTS * 1000.0)
        self._base = h100s(
            GPUS,
            values={"energy": ramp, "power_usage": WATTS * 1000},
            processes=[Proc(self._worker.pid)],
            loads=[Load(self._worker.pid, BUSY)],
        )
        self._fake = FakeNvml(self._base, folder)
        self._authority = trustme.CA(organization_name="soak")
        self.settings = self._settings()
        self.counters(0)
        self.token("one")
        self.certify()
        self.web(tls=False)
        self.hold({0: "a"})
        self.configure()

    @property
    def config(self) -> Path:
        return self.folder / "podgpu.yaml"

    @property
    def podlist(self) -> Path:
        return self.folder / "podlist.json"

    @property
    def ledger(self) -> Path:
        return self.disk / "usage.db"

    def queue(self, sink: str) -> Path:
        return self.disk / f"queue-{sink}"

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def uuid(self, gpu: int) -> str:
        return self._base.gpus[gpu].uuid

    def _settings(self) -> dict[str, Any]:
        folder, disk = self.folder, self.disk
        return {
            "node": "gpu-node",
            "http": {"web_config": str(folder / "web.yml")},
            "counters": {"file": str(folder / "counters.csv")},
            "sources": {
                "gpus": {
                    "kind": "nvml",
                    "interval": "1s",
                    "slow_interval": "2s",
                    "usage_interval": f"{SAMPLE_INTERVAL:g}s",
                },
                "pods": {"kind": "podlist", "path": str(self.podlist)},
            },
            "sinks": {
                "page": {"kind": "prometheus", "listen": f"127.0.0.1:{self.port}"},
                "file": {"kind": "textfile", "path": str(disk / "page.prom"), "interval": "1s"},
                "list": {"kind": "podlist", "path": str(disk / "podlist.json")},
                "lines": {"kind": "jsonl", "path": str(disk / "lines.jsonl"), "max_size": "4MiB"},
                "usage": {
                    "kind": "ledger",
                    "path": str(self.ledger),
                    "commit_interval": f"{SAMPLE_INTERVAL:g}s",
                },
                **{name: self._sending(name) for name in self.receivers},
            },
        }

    def _sending(self, name: str) -> dict[str, Any]:
        receiver = self.receivers[name]
        return {
            "kind": "otlp",
            "endpoint": receiver.url,
            "protocol": receiver.protocol,
            "logs": False,
            "bearer_token_file": str(self.folder / "token"),
            "timeout": "2s",
            "telemetry_interval": "5s",
            "retry": {"initial": "100ms", "max": "1s"},
            "queue": {"path": str(self.queue(name)), "max_size": "8MiB"},
        }

    # The record of faults and holders.

    def count(self, places: frozenset[str], name: str, seconds: float) -> None:
        """Record the start of a fault."""
        self.faults += 1
        self.breaks += bool(places & {"process", "gpus", "driver", "disk"})
        if name == "more than busy":
            self.wrong_busy += seconds + SAMPLE_INTERVAL
        if "process" in places or name == "podlist invalid":
            self.late += seconds

    def held(self, gpu: int, pod: str, begin: float, end: float) -> float:
        """Return for how many seconds a pod held a GPU according to the podlist."""
        edges = [*(at for at, _ in self.holding[1:]), end]
        spans = zip(self.holding, edges, strict=True)
        return sum(
            max(min(until, end) - max(since, begin), 0)
            for (since, holders), until in spans
            if holders.get(gpu) == pod
        )

    def unrecorded(self) -> float:
        """Return the seconds that may be missing in the ledger.

        If the disk was full when podgpu started or was killed, podgpu could neither write nor
        read the accounts: that run and the time before it may be missing.
        """
        return sum(
            run.ended - before.began
            for before, run in pairwise(self.runs)
            if run.disk_full or (before.disk_full and before.killed)
        )

    # Files.

    def write(self, path: Path, text: str) -> None:
        """Replace a file, or overwrite it in place."""
        if self.chance.random() < 0.7:
            new = path.with_name(f"{path.name}.new")
            new.write_text(text)
            new.replace(path)
        else:
            path.write_text(text)

    def configure(self) -> None:
        self.write(self.config, yaml.safe_dump(self.settings, sort_keys=False))

    def counters(self, which: int) -> None:
        self.write(self.folder / "counters.csv", _COUNTERS[which])

    def token(self, text: str) -> None:
        self.write(self.folder / "token", f"{text}\n")

    def certify(self) -> None:
        """Issue a new certificate."""
        leaf = self._authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        self.write(self.folder / "tls.key", leaf.private_key_pem.bytes().decode())
        self.write(self.folder / "tls.crt", chain.decode())

    def web(self, *, tls: bool, users: tuple[str, ...] = ()) -> None:
        text = {"basic_auth_users": {user: hashed(PASSWORD) for user in (USER, *users)}}
        pair = {"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}}
        self.write(self.folder / "web.yml", yaml.safe_dump({**text, **(pair if tls else {})}))

    def hold(self, holders: Mapping[int, str]) -> None:
        held: dict[str, list[str]] = {}
        for gpu, pod in holders.items():
            held.setdefault(pod, []).append(self.uuid(gpu))
        hold(self.podlist, held)
        self.holding.append((time.monotonic(), dict(holders)))

    # GPUs.

    def play(self, name: str, change: Callable[[Gpu], Gpu] | None, gpus: set[int]) -> None:
        """Begin a fault of some GPUs; None as the change ends it."""
        with self.lock:
            self._played.pop(name, None)
            if change is not None:
                self._played[name] = lambda gpu: change(gpu) if (gpu.minor or 0) in gpus else gpu
            self._replay()

    def play_node(self, **changes: Any) -> None:
        """Begin a fault of the driver; without changes, end it."""
        with self.lock:
            self._node = changes
            self._replay()

    def _replay(self) -> None:
        # The driver stamps its samples with the wall clock; the fake library reads the offset when
        # podgpu starts.
        shift = (self.clock.offset_ns - self._started_ns) // 1000
        gpus = [
            replace(gpu, values={**gpu.values, "sampling_shift": shift}) for gpu in self._base.gpus
        ]
        for change in self._played.values():
            gpus = [change(gpu) for gpu in gpus]
        self._fake.set(replace(self._base, gpus=gpus, **self._node))

    def step_clock(self, seconds: float) -> None:
        """Set the wall clock of podgpu and of the driver."""
        with self.lock:
            self.clock.step(seconds)
            self._replay()

    def xid(self, gpu: int, code: int) -> None:
        self._fake.push_xid(gpu, code)

    # The process.

    def start(self) -> None:
        """Start podgpu, and wait until it has read its files; an invalid file would end it."""
        before = self.log_text().count(_SERVING)
        with self.lock:
            self._started_ns = self.clock.offset_ns
            self._replay()
            env = {**self._fake.env(), **self.clock.env()}
            self._process = Process([PODGPU, "run", "-c", self.config], self.log, env)
            self.runs.append(PodgpuRun(time.monotonic(), disk_full=self.full))
        serving = lambda: self.log_text().count(_SERVING) > before  # noqa: E731
        wait_until(serving, f"podgpu serves:\n{self.log_text()[-3000:]}", 60, every=0.1)

    def kill(self) -> None:
        with self.lock:
            self.process.send(signal.SIGCONT)
            self.process.stop(signal.SIGKILL)
            self.runs[-1].ended, self.runs[-1].killed = time.monotonic(), True

    def stop(self) -> int:
        with self.lock:
            status = self.process.stop()
            self.runs[-1].ended = time.monotonic()
            return status

    def limit_descriptors(self, more: int | None) -> None:
        """Limit how many more files podgpu can open than now or at its start; None ends that."""
        pid = self.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        have = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        soft = hard if more is None else max(have, _STARTED) + more
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard), hard))

    def fill(self) -> None:
        """Fill the disk."""
        with self.lock:
            self.full = self.runs[-1].disk_full = True
        with (self.disk / "filler").open("ab", buffering=0) as file:
            for piece in (1 << 16, 1 << 12):
                try:
                    while file.write(b"\1" * piece) == piece:
                        pass
                except OSError:
                    continue

    def clear(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)
        self.full = False

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        """Stop all processes and receivers."""
        if self._process is not None and self._process.running:
            self._process.send(signal.SIGCONT)
            self._process.stop(signal.SIGKILL)
        self._worker.kill()
        self._worker.wait()
        for receiver in self.receivers.values():
            receiver.kill()


def podlist_of(path: Path) -> list[Any]:
    """Return the content of a podlist file."""
    found: list[Any] = json.loads(path.read_text())
    return found
