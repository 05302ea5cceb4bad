"""A podgpu with everything that it reads and writes, and a record of what it was played."""

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
"""Per cent of the time for which each GPU is busy."""

USER, PASSWORD = "soak", "sound"
PODS: Final = ("a", "b", "c")
LOOK: Final = 1.0
"""Seconds between two looks at who uses the GPUs, and between two commits of the ledger."""

_SERVING: Final = "podgpu.http: serving "
_STARTED: Final = 36
"""Descriptors that a podgpu has once it has started."""

DISK_MIB: Final = 48
_COUNTERS: Final = (
    "DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation\nDCGM_FI_DEV_POWER_USAGE, gauge, Power\n",
    "DCGM_FI_DEV_POWER_USAGE, gauge, Power\nDCGM_FI_DEV_FB_USED, gauge, Memory\n",
)


@dataclass(slots=True)
class Life:
    """One run of podgpu.

    Attributes:
        began, ended: on the monotonic clock; it ended at 0 while it runs.
        killed: whether by SIGKILL.
        sick: whether its disk was full at any time, or when it began.
    """

    began: float
    ended: float = 0.0
    killed: bool = False
    sick: bool = False


class World:
    """What faults and the checker share.

    Args:
        folder: where all files lie.
        disk: where podgpu writes; a small disk of its own where there may be one.
        chance: what decides.

    Attributes:
        receivers: what podgpu sends to, by the name of the sink.
        lives: the runs of podgpu.
        full: whether the disk is full.
        faults: how many there were.
        breaks: how many of them may have cost a look at who uses the GPUs.
        lied: seconds for which the driver told wrong busy times.
        late: seconds for which podgpu could not see who holds the GPUs.
    """

    def __init__(self, folder: Path, disk: Path, chance: random.Random) -> None:
        self.folder, self.disk, self.chance = folder, disk, chance
        self.lock = threading.RLock()
        self.clock = SetClock(folder / "clock")
        self.receivers: dict[str, Receiver] = {"push": HttpReceiver(), "call": GrpcReceiver()}
        self.log = folder / "podgpu.log"
        (self.port,) = free_ports(1)
        self.lives: list[Life] = []
        self.full = False
        self.faults = self.breaks = 0
        self.lied = self.late = 0.0
        self.holding: list[tuple[float, Mapping[int, str]]] = []
        """Who holds which GPU from when on, by the podlist."""

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
                    "usage_interval": f"{LOOK:g}s",
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
                    "commit_interval": f"{LOOK:g}s",
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

    # What was played.

    def count(self, places: frozenset[str], name: str, seconds: float) -> None:
        """Remember a fault that begins."""
        self.faults += 1
        self.breaks += bool(places & {"process", "gpus", "driver", "disk"})
        if name == "more than busy":
            self.lied += seconds + LOOK
        if "process" in places or name == "podlist broken":
            self.late += seconds

    def held(self, gpu: int, pod: str, begin: float, end: float) -> float:
        """Return for how many seconds a pod held a GPU by the podlist."""
        edges = [*(at for at, _ in self.holding[1:]), end]
        spans = zip(self.holding, edges, strict=True)
        return sum(
            max(min(until, end) - max(since, begin), 0)
            for (since, holders), until in spans
            if holders.get(gpu) == pod
        )

    def untold(self) -> float:
        """Return the seconds of which a ledger may tell nothing.

        Where the disk was full when podgpu started, or when it was killed, it could neither write
        nor read how the accounts stood: that life, and the time before it, may be missing.
        """
        return sum(
            life.ended - before.began
            for before, life in pairwise(self.lives)
            if life.sick or (before.sick and before.killed)
        )

    # Its files.

    def write(self, path: Path, text: str) -> None:
        """Put a file in the place of the one before, or write into it."""
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

    # Its GPUs.

    def play(self, name: str, change: Callable[[Gpu], Gpu] | None, gpus: set[int]) -> None:
        """Let something be wrong with GPUs from now on; None ends it."""
        with self.lock:
            self._played.pop(name, None)
            if change is not None:
                self._played[name] = lambda gpu: change(gpu) if (gpu.minor or 0) in gpus else gpu
            self._replay()

    def play_node(self, **changes: Any) -> None:
        """Let something be wrong with the driver from now on; without anything, that ends."""
        with self.lock:
            self._node = changes
            self._replay()

    def _replay(self) -> None:
        # The driver stamps its samples by the wall clock; the library found out about that when
        # podgpu started.
        shift = (self.clock.offset_ns - self._started_ns) // 1000
        gpus = [
            replace(gpu, values={**gpu.values, "sampling_shift": shift}) for gpu in self._base.gpus
        ]
        for change in self._played.values():
            gpus = [change(gpu) for gpu in gpus]
        self._fake.set(replace(self._base, gpus=gpus, **self._node))

    def step_clock(self, seconds: float) -> None:
        """Set the wall clock, which is the driver's too."""
        with self.lock:
            self.clock.step(seconds)
            self._replay()

    def xid(self, gpu: int, code: int) -> None:
        self._fake.push_xid(gpu, code)

    # Its process.

    def start(self) -> None:
        """Start it, and wait until it has read its files: who finds a broken one then ends."""
        before = self.said().count(_SERVING)
        with self.lock:
            self._started_ns = self.clock.offset_ns
            self._replay()
            env = {**self._fake.env(), **self.clock.env()}
            self._process = Process([PODGPU, "run", "-c", self.config], self.log, env)
            self.lives.append(Life(time.monotonic(), sick=self.full))
        serving = lambda: self.said().count(_SERVING) > before  # noqa: E731
        wait_until(serving, f"podgpu serves:\n{self.said()[-3000:]}", 60, every=0.1)

    def kill(self) -> None:
        with self.lock:
            self.process.send(signal.SIGCONT)
            self.process.stop(signal.SIGKILL)
            self.lives[-1].ended, self.lives[-1].killed = time.monotonic(), True

    def stop(self) -> int:
        with self.lock:
            status = self.process.stop()
            self.lives[-1].ended = time.monotonic()
            return status

    def limit_descriptors(self, more: int | None) -> None:
        """Let podgpu open so many more files than it has, or needs to start; None lets it go."""
        pid = self.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        have = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        soft = hard if more is None else max(have, _STARTED) + more
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard), hard))

    def fill(self) -> None:
        """Take all the room that the disk has."""
        with self.lock:
            self.full = self.lives[-1].sick = True
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

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        """End all that was started."""
        if self._process is not None and self._process.running:
            self._process.send(signal.SIGCONT)
            self._process.stop(signal.SIGKILL)
        self._worker.kill()
        self._worker.wait()
        for receiver in self.receivers.values():
            receiver.kill()


def podlist_of(path: Path) -> list[Any]:
    """Return the list that podgpu wrote."""
    found: list[Any] = json.loads(path.read_text())
    return found
