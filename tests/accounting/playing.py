"""Plays stories through the real runtime, join and ledger, on virtual time.

SIGKILL: what stands in the ledger's file at that moment is all that the next podgpu gets.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pipeline.component.contracts import SourceContext
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.model import (
    NS,
    ClaimsReplaced,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    DevicesDiscovered,
    DeviceUse,
    Evidence,
    Instant,
    PodsReplaced,
    ProcessesSampled,
    ProcessUse,
    Snapshot,
    XidReport,
    XidsReported,
)
from pipeline.runtime import runtime as runtimes
from pipeline.runtime import source_set
from sinks.ledger import ledger_file
from sinks.ledger import sink as ledger_sink
from sinks.ledger.ledger_file import LedgerFile
from tests.accounting.given_out import (
    Act,
    Begun,
    Erred,
    Failed,
    Filed,
    Given,
    Killed,
    Listed,
    Looked,
    Rebooted,
    Reloaded,
    Running,
    Set,
    Shown,
    Spoken,
    Stopped,
    Story,
    Who,
)
from tests.accounting.reporting import (
    ALIASES,
    DEVICES,
    FOREVER,
    PODS,
    claim,
    given,
    owner,
    pod_of,
    ref,
    running,
)
from tests.accounting.running import Machine, Podgpu
from tests.accounting.virtual import VirtualLoop
from tests.pipeline.delivery.support import AtOnce


@dataclass
class Seen:
    """What a run has shown.

    Attributes:
        acts: what was told in it.
        page: the accounts as they stood at its end.
        path: a ledger as it stood then.
        end: when that was.
        ended: how, `killed` or `stopped`.
        written: how many of the acts the file has.
        when: when podgpu heard of the last of what the file has.
    """

    acts: list[Act]
    page: Snapshot
    path: Path
    end: int
    ended: str
    written: int
    when: int


class Player:
    """Plays one story."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.loop = VirtualLoop()
        self.machine = Machine(folder, self.loop, story.wall)
        self.run: Podgpu | None = None
        self.seen: list[Seen] = []
        self.taken = self.taken_at = self.written_at = 0
        self.written = 0
        """How many acts of the run the ledger has, by the calls that write it."""
        self.begun = 0
        """How many there were when podgpu had begun: the clock may have been set before."""
        self._reported: list[Act] = []
        self._alive: dict[Who, dict[str, float | None]] = {}
        self._given: dict[str, Who] = {}
        self._filed: dict[str, Who] = {}

    @property
    def given_out(self) -> int:
        """How many acts of the run have been told."""
        return len(self._reported)

    def reported_until(self, moment: int) -> int:
        """Return how many of them had been by a moment."""
        return sum(act.at <= moment for act in self._reported)

    def play(self) -> list[Seen]:
        with patched(self):
            asyncio.set_event_loop(self.loop)
            try:
                self.loop.run_until_complete(self._play())
            finally:
                asyncio.set_event_loop(None)
                self.loop.close()
        return self.seen

    async def _play(self) -> None:
        for act in self.story.acts:
            await self.loop.until(act.at)
            self._reported.append(act)
            match act:
                case Begun():
                    await self._begin(act)
                case Killed() | Stopped():
                    await self._end(act)
                case Rebooted():
                    self.machine.boots += 1
                    self.machine.booted = self.loop.now_ns
                case Set(by=by):
                    self.machine.offset += by
                case _:
                    assert self.run is not None
                    await self._do(self.run, act)
        assert self.run is None, "a story ends with the end of podgpu"

    async def _begin(self, act: Begun) -> None:
        self.machine.path.parent.mkdir(exist_ok=True)
        self.begun = self.given_out
        run = self.run = Podgpu(self.machine, self.story.commit, self.story.sources)
        await run.begun()
        self._alive = {who: dict(holds) for who, holds in act.running.items()}
        self._given, self._filed = dict(act.given), {}
        await run.tell("gpus", DevicesDiscovered(tuple(DEVICES[name] for name in act.devices)))
        await run.tell("pods", PodsReplaced(tuple(map(pod_of, PODS)), FOREVER))
        await run.tell("kubelet", self._list())
        await run.tell("file", self._file())
        for source in ("other", "kernel"):
            await run.tell(source, XidsReported(()))
        await run.tell("pods", ALIASES)
        if not act.late:
            await run.tell("runtime", self._containers())

    async def _end(self, act: Act) -> None:
        run, machine = self.run, self.machine
        assert run is not None
        page, written, when = run.snapshot, self.written, self.written_at
        before = machine.path
        if isinstance(act, Killed):
            machine.runs += 1
            machine.path.parent.mkdir()
            for end in ("", "-wal"):
                shutil.copyfile(f"{before}{end}", f"{machine.path}{end}")
            await run.stop()
            shutil.rmtree(before.parent)
        else:
            await run.stop()
            written, when = len(self._reported), self.taken_at
        self.run = None
        kept = machine.path.parent / f"after-{len(self.seen)}.db"
        for end in ("", "-wal"):
            if Path(f"{machine.path}{end}").exists():
                shutil.copyfile(f"{machine.path}{end}", f"{kept}{end}")
        ended = "killed" if isinstance(act, Killed) else "stopped"
        kept = kept.rename(machine.folder / f"after-{len(self.seen)}.db")
        log = machine.path.parent / f"after-{len(self.seen)}.db-wal"
        if log.exists():
            log.rename(machine.folder / log.name)
        self.seen.append(Seen(self._reported, page, kept, act.at, ended, written, when))
        self._reported, self.written, self.taken = [], 0, 0

    async def _do(self, run: Podgpu, act: Act) -> None:
        match act:
            case Running(who=who, holds=None):
                self._alive.pop(who, None)
                await run.tell("runtime", ContainerStopped(ref(who).container_id))
            case Running(who=who, holds=holds):
                assert holds is not None
                self._alive[who] = dict(holds)
                await run.tell("runtime", ContainerStarted(running(who, holds)))
            case Listed() | Spoken():
                await run.tell("runtime", self._containers())
            case Given(device=device, who=who):
                self._given.pop(device, None)
                if who is not None:
                    self._given[device] = who
                await run.tell("kubelet", self._list())
            case Filed(device=device, who=who):
                self._filed.pop(device, None)
                if who is not None:
                    self._filed[device] = who
                await run.tell("file", self._file())
            case Looked(looks=looks, by=by):
                await run.tell(by, ProcessesSampled(tuple(self._use(one) for one in looks)))
            case Erred(device=device, code=code, when=when, by=by):
                names = (
                    ("", DEVICES[device].pci_bus_id)
                    if by == "kernel"
                    else (DEVICES[device].uuid, "")
                )
                report = XidReport(*names, code, self._instant(when))
                await run.tell(by, XidsReported((report,)))
            case Shown(devices=devices):
                found = tuple(DEVICES[name] for name in devices)
                await run.tell("gpus", DevicesDiscovered(found))
            case Reloaded(what=what):
                await run.reload(what)
            case Failed(source=source):
                await run.fail(source)
            case _:
                await run.settled()

    def _containers(self) -> ContainersReplaced:
        return ContainersReplaced(
            tuple(running(who, holds) for who, holds in self._alive.items()), FOREVER
        )

    def _list(self) -> ClaimsReplaced:
        return ClaimsReplaced(
            tuple(
                given(who, device, by_claim=self.story.claims)
                for device, who in self._given.items()
            ),
            FOREVER,
        )

    def _file(self) -> ClaimsReplaced:
        return ClaimsReplaced(
            tuple(claim(who, d, Evidence.POD_LIST_FILE) for d, who in self._filed.items()), FOREVER
        )

    def _instant(self, moment: int) -> Instant:
        machine = self.machine
        return Instant(moment - machine.booted + 1000 * NS, moment + machine.offset)

    def _use(self, look: Any) -> DeviceUse:
        return DeviceUse(
            DEVICES[look.device].uuid,
            self._instant(look.at),
            None if look.since is None else self._instant(look.since),
            tuple(
                ProcessUse(
                    number,
                    number,
                    None if one.who is None else owner(one.who),
                    "mps" if one.client else "compute" if one.there else "",
                    one.memory,
                    one.busy,
                )
                for number, one in enumerate(look.works)
            ),
            look.used,
            0 if look.used is not None else None,
            look.busy,
            look.energy,
            look.good_for,
            look.listed,
            look.mps,
        )


@contextmanager
def patched(player: Player) -> Iterator[None]:
    """Let podgpu have the story's sources, and call what blocks where it is asked for."""

    async def run(ctx: SourceContext) -> None:
        assert player.run is not None
        await player.run.run_source(ctx)

    def build(kind: str, options: object) -> Any:
        return SimpleNamespace(run=run)

    put = LedgerFile.put

    def write(file: LedgerFile, batch: Any) -> Any:
        report = put(file, batch)
        # That podgpu has begun is in all that it writes.
        player.written, player.written_at = max(player.taken, player.begun), player.taken_at
        return report

    take = LedgerAccumulator.add_snapshot

    def book(self: LedgerAccumulator, snapshot: Snapshot) -> None:
        take(self, snapshot)
        # A book that is new gets a snapshot that was there before.
        player.taken_at = player.machine.passed(snapshot.at)
        player.taken = player.reported_until(player.taken_at)

    level = logging.getLogger("podgpu").level
    logging.getLogger("podgpu").setLevel(logging.CRITICAL)
    try:
        with (
            mock.patch.object(source_set, "build_source", build),
            mock.patch.object(ledger_sink, "DaemonExecutor", AtOnce),
            mock.patch.object(LedgerFile, "put", write),
            mock.patch.object(LedgerAccumulator, "add_snapshot", book),
            mock.patch.object(ledger_file, "boot_id", player.machine.boot),
            mock.patch.object(runtimes, "settle"),
        ):
            yield
    finally:
        logging.getLogger("podgpu").setLevel(level)
