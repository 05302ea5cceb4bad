"""The real state of the node in a story, and usage samples of its devices."""

from random import Random
from typing import Final

from tests.accounting.actions import (
    MS,
    Action,
    ContainerName,
    Process,
    S,
    Sample,
)

ALL_SOURCES: Final = ("gpus", "runtime", "kubelet", "file", "pods", "other", "kernel")


class Node:
    """Containers, processes and counters."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.now = rng.randrange(S)
        self.actions: list[Action] = []
        self.mig = rng.random() < 0.3
        self.devices = ["g0", *(["g1"] if rng.random() < 0.5 else [])]
        if self.mig:
            self.devices += ["m1", "m2", "g2"]
        self.lost: set[str] = set()
        self.running: dict[ContainerName, dict[str, float | None]] = {}
        self.allocated: dict[str, ContainerName] = {}
        self.in_file: dict[str, ContainerName] = {}
        self.users: dict[str, set[ContainerName]] = {device: set() for device in self.devices}
        self.departed: dict[str, set[ContainerName]] = {device: set() for device in self.devices}
        self.counter = {device: rng.randrange(1 << 30) for device in self.devices}
        self.read_at = dict.fromkeys(self.devices, self.now)
        self.since: dict[str, int | None] = dict.fromkeys(self.devices)
        self.unsampled = set(self.devices)
        """Devices without a counted sample since podgpu started."""
        self.mps = False
        self.server: ContainerName = ""
        self.has_mps = rng.random() < 0.25
        self.processes_hidden = rng.random() < 0.1
        self.source_roll = rng.random()
        # After a reboot the wall clock is used: an account of a week ago is removed.
        self.reboots = rng.random() < 0.25
        self.errors: dict[str, int] = {}
        self.sources: tuple[str, ...] = ALL_SOURCES
        if self.source_roll < 0.1:
            self.sources = ("gpus", "kernel")
        elif self.source_roll < 0.3:
            self.sources = ("gpus", "runtime", "kernel")

    @property
    def nameable(self) -> list[ContainerName]:
        """Containers whose processes podgpu can name."""
        return sorted(self.running) if "runtime" in self.sources else []

    def sample_device(self, device: str) -> Sample:
        rng, at = self.rng, self.now
        since, self.since[device] = self.since[device], at
        took = at - since if since is not None else 0
        departed, self.departed[device] = self.departed[device], set()
        if device in {"m1", "m2"}:
            processes = [
                Process(container, None, rng.randrange(1 << 32))
                for container in sorted(self.users[device])
            ]
            busy = rng.choice((None, 0, rng.randrange(took + 1))) if took else None
            return Sample(device, at, since, tuple(processes), busy=busy)
        energy = self.energy(device, at)
        if device == "g2":
            return Sample(device, at, since, (), energy=energy)
        if self.processes_hidden:
            busy = rng.choice((None, rng.randrange(took + 1))) if took else None
            return Sample(device, at, since, (), busy=busy, energy=energy, listed=False)
        if device == "g0" and self.has_mps and rng.random() < 0.2:
            self.mps, self.server = not self.mps, rng.choice(("", *self.nameable))
        if device == "g0" and self.mps:
            return self.sample_with_mps(at, since, took, energy)
        processes = self.random_processes(device, took, departed)
        known = took > 0 and rng.random() < 0.92
        if not known:
            processes = [
                Process(one.container, None, one.memory) for one in processes if one.running
            ]
        busy = sum(one.busy or 0 for one in processes) if known else None
        return Sample(device, at, since, tuple(processes), busy=busy, energy=energy)

    def sample_with_mps(self, at: int, since: int | None, took: int, energy: int | None) -> Sample:
        """Return a sample in which the driver credits the server with its clients' busy time."""
        rng = self.rng
        server = self.server if self.server in self.running else ""
        processes = [Process(server, None, rng.randrange(1 << 28))]
        rest = took
        for container in sorted(self.users["g0"]):
            memory = rng.randrange(1 << 33)
            if rng.random() < 0.7:
                processes.append(Process(container, None, memory, client=True))
            else:
                busy = rng.randrange(rest // 2 + 1)
                rest -= busy
                processes.append(Process(container, busy, memory))
        busy_ = took - rest + rng.randrange(rest + 1) if took and rng.random() < 0.9 else None
        return Sample("g0", at, since, tuple(processes), busy=busy_, energy=energy, mps=True)

    def random_processes(
        self, device: str, took: int, departed: set[ContainerName]
    ) -> list[Process]:
        rng = self.rng
        running = sorted(self.users[device])
        most = took // max(len(running) + len(departed), 1) if rng.random() < 0.9 else took
        processes = [
            Process(container, self.busy(most), rng.choice((0, rng.randrange(1 << 33), None)))
            for container in running
            for _ in range(rng.choice((1, 1, 2)))
        ]
        processes += [
            Process(container, rng.randrange(1, most + 2), None, running=False)
            for container in sorted(departed)
            if most
        ]
        if rng.random() < 0.2:
            processes.append(
                Process(rng.choice(("", None)), self.busy(most), rng.randrange(1 << 30))
            )
        if rng.random() < 0.1 and took:
            processes.append(Process(None, self.busy(most), None, running=False))
        return processes

    def busy(self, most: int) -> int:
        return self.rng.choice((0, self.rng.randrange(most + 1), self.rng.randrange(most + 1)))

    def energy(self, device: str, at: int) -> int | None:
        rng = self.rng
        watts = rng.choice((60, 60, 150, 700))
        self.counter[device] += watts * ((at - self.read_at[device]) // MS)
        self.read_at[device] = at
        value = self.counter[device]
        roll = rng.random()
        if roll < 0.04:
            return None
        if roll < 0.07:
            return rng.choice((0, value % 65536, value * 3 + (1 << 33)))
        if roll < 0.075:
            self.counter[device] = value = rng.randrange(1000)
        return value
