"""A machine whose wall clock is set, with a podgpu that is killed and restarted on it.

It uses the real join and a real ledger, in virtual time. A kill loses what isn't committed.
"""

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.join import Join
from pipeline.ledger.account_state import to_current_clock
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.writer_open import open_readwrite, read_stored_state
from pipeline.model import (
    NS,
    Claim,
    ClaimsReplaced,
    DevicesDiscovered,
    DeviceUse,
    Envelope,
    Event,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    ProcessesSampled,
    RawDeviceId,
    Snapshot,
    SourceAdded,
)
from tests.support.nodes import gpu

DEVICE = gpu(0)
TRUE_WALL_NS = 1_800_000_000 * NS
FOREVER_NS = 3600 * NS * 24 * 365 * 50


@dataclass
class Machine:
    """The two clocks, and the real holder of the device.

    Attributes:
        mono_ns: the monotonic clock.
        ahead_ns: how far the wall clock is ahead of the true time.
        noise_ns: by how much two processes differ in their measured offset of the clocks.
        boot: identifies the boot.
    """

    path: Path
    mono_ns: int = 500 * NS
    ahead_ns: int = 0
    noise_ns: int = 0
    boot: str = "boot-0"
    boots: int = 0
    booted_ns: int = 0
    """What the monotonic clock of the first boot would show at the start of this boot."""
    holder: str = "a"
    runs: int = 0

    def now(self) -> Instant:
        wall = TRUE_WALL_NS + self.booted_ns + self.mono_ns + self.ahead_ns + self.noise_ns
        return Instant(self.mono_ns, wall)

    def wait(self, seconds: float) -> None:
        self.mono_ns += round(seconds * NS)

    def reboot(self) -> None:
        self.boots += 1
        self.boot = f"boot-{self.boots}"
        self.booted_ns += self.mono_ns - 20 * NS
        self.mono_ns = 20 * NS

    def start(self) -> "Run":
        self.runs += 1
        return Run(self, f"run-{self.runs}")


@dataclass
class Expected:
    """What the ledger must contain, in nanoseconds."""

    accounted: int = 0
    gap: int = 0
    held: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "Expected":
        return Expected(self.accounted, self.gap, Counter(self.held))


class Run:
    """One run of podgpu, from its start to its kill."""

    def __init__(self, machine: Machine, token: str) -> None:
        self.machine = machine
        self.join = Join(token)
        self._seq = 0
        self._before: Instant | None = None
        born = machine.now()
        self._connection = open_readwrite(machine.path, "normal")
        self._store = BatchWriter(self._connection, machine.boot)
        stored = read_stored_state(self._connection, str(machine.path))
        accounts = to_current_clock(
            stored.accounts.values(), born, stored.boots, machine.boot, born
        )
        states = {one.device: one for one in accounts.devices}
        self.accumulator = LedgerAccumulator(
            born, states, stored.open_holdings, shifted=stored.shifted_devices(states, machine.boot)
        )
        if accounts.devices:
            self._put("usage", "ledger", accounts)
        for order, source in enumerate(("nvml", "runtime")):
            self._put(source, source, SourceAdded(order))
        self._put("nvml", "nvml", DevicesDiscovered((DEVICE,)))
        self.hold(machine.holder)

    def _put(self, source: str, kind: str, event: Event) -> None:
        self._seq += 1
        self.join.apply(Envelope(source, kind, self._seq, self.machine.now(), event))

    def hold(self, pod: str) -> None:
        """Let a pod hold the device from now on; no container if its name is empty."""
        self.machine.holder = pod
        ids = (RawDeviceId("uuid", DEVICE.uuid),)
        origin = Origin(Evidence.RUNTIME_CDI)
        claim = Claim(PartialRef("ml", pod, "main", f"u-{pod}"), ids, None, None, origin)
        self._put("runtime", "runtime", ClaimsReplaced((claim,) if pod else (), FOREVER_NS))

    def sample(self) -> Snapshot:
        """Add a usage sample of the device, and give the snapshot to the ledger."""
        now = self.machine.now()
        use = DeviceUse(DEVICE.uuid, now, self._before, (), 0, 0, None, None, 3600 * NS)
        self._before = now
        self._put("nvml", "nvml", ProcessesSampled((use,)))
        snapshot = self.join.snapshot(now)
        self.accumulator.add_snapshot(snapshot)
        return snapshot

    def commit(self) -> None:
        self._store.write_batch(self.accumulator.take_batch())

    def kill(self) -> None:
        self._connection.close()


def rows(path: Path, text: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()
