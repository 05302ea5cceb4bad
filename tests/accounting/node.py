"""What is true on the node of a story, and what a look at its devices finds."""

from random import Random
from typing import Final

from tests.accounting.given_out import (
    MS,
    Act,
    Look,
    S,
    Who,
    Work,
)

ALL_SOURCES: Final = ("gpus", "runtime", "kubelet", "file", "pods", "other", "kernel")


class Node:
    """Containers, processes, counters."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.now = rng.randrange(S)
        self.acts: list[Act] = []
        self.mig = rng.random() < 0.3
        self.devices = ["g0", *(["g1"] if rng.random() < 0.5 else [])]
        if self.mig:
            self.devices += ["m1", "m2", "g2"]
        self.gone: set[str] = set()
        self.running: dict[Who, dict[str, float | None]] = {}
        self.given: dict[str, Who] = {}
        self.filed: dict[str, Who] = {}
        self.using: dict[str, set[Who]] = {device: set() for device in self.devices}
        self.left: dict[str, set[Who]] = {device: set() for device in self.devices}
        self.counter = {device: rng.randrange(1 << 30) for device in self.devices}
        self.read = dict.fromkeys(self.devices, self.now)
        self.since: dict[str, int | None] = dict.fromkeys(self.devices)
        self.fresh = set(self.devices)
        """Devices at which no look has counted since podgpu began."""
        self.mps = False
        self.server: Who = ""
        self.serves = rng.random() < 0.25
        self.hidden = rng.random() < 0.1
        self.given_out = rng.random()
        # Over a boot the wall clock is believed: an account of a week ago is let go of.
        self.reboots = rng.random() < 0.25
        self.errors: dict[str, int] = {}
        self.sources: tuple[str, ...] = ALL_SOURCES
        if self.given_out < 0.1:
            self.sources = ("gpus", "kernel")
        elif self.given_out < 0.3:
            self.sources = ("gpus", "runtime", "kernel")

    @property
    def able(self) -> list[Who]:
        """Those whose processes podgpu can name."""
        return sorted(self.running) if "runtime" in self.sources else []

    def of(self, device: str) -> Look:
        rng, at = self.rng, self.now
        since, self.since[device] = self.since[device], at
        took = at - since if since is not None else 0
        left, self.left[device] = self.left[device], set()
        if device in {"m1", "m2"}:
            works = [Work(who, None, rng.randrange(1 << 32)) for who in sorted(self.using[device])]
            busy = rng.choice((None, 0, rng.randrange(took + 1))) if took else None
            return Look(device, at, since, tuple(works), busy=busy)
        energy = self.energy(device, at)
        if device == "g2":
            return Look(device, at, since, (), energy=energy)
        if self.hidden:
            busy = rng.choice((None, rng.randrange(took + 1))) if took else None
            return Look(device, at, since, (), busy=busy, energy=energy, listed=False)
        if device == "g0" and self.serves and rng.random() < 0.2:
            self.mps, self.server = not self.mps, rng.choice(("", *self.able))
        if device == "g0" and self.mps:
            return self.beside_mps(at, since, took, energy)
        works = self.works(device, took, left)
        known = took > 0 and rng.random() < 0.92
        if not known:
            works = [Work(one.who, None, one.memory) for one in works if one.there]
        busy = sum(one.busy or 0 for one in works) if known else None
        return Look(device, at, since, tuple(works), busy=busy, energy=energy)

    def beside_mps(self, at: int, since: int | None, took: int, energy: int | None) -> Look:
        """The driver credits the server with what its clients do."""
        rng = self.rng
        server = self.server if self.server in self.running else ""
        works = [Work(server, None, rng.randrange(1 << 28))]
        rest = took
        for who in sorted(self.using["g0"]):
            memory = rng.randrange(1 << 33)
            if rng.random() < 0.7:
                works.append(Work(who, None, memory, client=True))
            else:
                busy = rng.randrange(rest // 2 + 1)
                rest -= busy
                works.append(Work(who, busy, memory))
        busy_ = took - rest + rng.randrange(rest + 1) if took and rng.random() < 0.9 else None
        return Look("g0", at, since, tuple(works), busy=busy_, energy=energy, mps=True)

    def works(self, device: str, took: int, left: set[Who]) -> list[Work]:
        rng = self.rng
        there = sorted(self.using[device])
        most = took // max(len(there) + len(left), 1) if rng.random() < 0.9 else took
        works = [
            Work(who, self.busy(most), rng.choice((0, rng.randrange(1 << 33), None)))
            for who in there
            for _ in range(rng.choice((1, 1, 2)))
        ]
        works += [
            Work(who, rng.randrange(1, most + 2), None, there=False) for who in sorted(left) if most
        ]
        if rng.random() < 0.2:
            works.append(Work(rng.choice(("", None)), self.busy(most), rng.randrange(1 << 30)))
        if rng.random() < 0.1 and took:
            works.append(Work(None, self.busy(most), None, there=False))
        return works

    def busy(self, most: int) -> int:
        return self.rng.choice((0, self.rng.randrange(most + 1), self.rng.randrange(most + 1)))

    def energy(self, device: str, at: int) -> int | None:
        rng = self.rng
        watts = rng.choice((60, 60, 150, 700))
        self.counter[device] += watts * ((at - self.read[device]) // MS)
        self.read[device] = at
        value = self.counter[device]
        roll = rng.random()
        if roll < 0.04:
            return None
        if roll < 0.07:
            return rng.choice((0, value % 65536, value * 3 + (1 << 33)))
        if roll < 0.075:
            self.counter[device] = value = rng.randrange(1000)
        return value
