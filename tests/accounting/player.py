"""Play stories through the real runtime, join and ledger, on virtual time.

After a SIGKILL, the next podgpu gets only what is in the ledger's file at that time.
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
from tests.accounting.actions import (
    Action,
    ClockSet,
    ContainerChanged,
    ContainerName,
    ContainersListed,
    DevicesChanged,
    ErrorReported,
    Killed,
    KubeletChanged,
    PodListChanged,
    Rebooted,
    Reloaded,
    RuntimeReported,
    SamplesReported,
    SourceFailed,
    Started,
    Stopped,
    Story,
)
from tests.accounting.podgpu_run import Machine, Podgpu
from tests.accounting.source_events import (
    ALIASES,
    DEVICES,
    FOREVER,
    PODS,
    claim,
    kubelet_claim,
    owner,
    pod_of,
    ref,
    running_container,
)
from tests.accounting.virtual_loop import VirtualLoop
from tests.pipeline.delivery.support import InlineExecutor


@dataclass
class RunResult:
    """The results of a run.

    Attributes:
        actions: the actions of the run.
        page: the last snapshot.
        path: a copy of the ledger at the end.
        end: when the run ended.
        ended: how it ended, `killed` or `stopped`.
        written: how many of the actions the file contains.
        when: the time of the last action that the file contains, as podgpu noticed it.
    """

    actions: list[Action]
    page: Snapshot
    path: Path
    end: int
    ended: str
    written: int
    when: int


class Player:
    """Play one story."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.loop = VirtualLoop()
        self.machine = Machine(folder, self.loop, story.wall)
        self.run: Podgpu | None = None
        self.results: list[RunResult] = []
        self.accumulated = self.accumulated_at = self.written_at = 0
        self.written = 0
        """How many actions of the run the ledger contains, by its write calls."""
        self.actions_at_start = 0
        """How many there were when podgpu had started: the clock may have been set before."""
        self._actions: list[Action] = []
        self._running: dict[ContainerName, dict[str, float | None]] = {}
        self._allocated: dict[str, ContainerName] = {}
        self._in_file: dict[str, ContainerName] = {}

    @property
    def action_count(self) -> int:
        """Return how many actions of the run have been performed."""
        return len(self._actions)

    def actions_until(self, moment: int) -> int:
        """Return how many actions had been performed by a time."""
        return sum(action.at <= moment for action in self._actions)

    def play(self) -> list[RunResult]:
        with patched(self):
            asyncio.set_event_loop(self.loop)
            try:
                self.loop.run_until_complete(self._play())
            finally:
                asyncio.set_event_loop(None)
                self.loop.close()
        return self.results

    async def _play(self) -> None:
        for action in self.story.actions:
            await self.loop.until(action.at)
            self._actions.append(action)
            match action:
                case Started():
                    await self._start(action)
                case Killed() | Stopped():
                    await self._end(action)
                case Rebooted():
                    self.machine.boots += 1
                    self.machine.booted = self.loop.now_ns
                case ClockSet(by=by):
                    self.machine.offset += by
                case _:
                    assert self.run is not None
                    await self._perform(self.run, action)
        assert self.run is None, "a story ends with the end of podgpu"

    async def _start(self, action: Started) -> None:
        self.machine.path.parent.mkdir(exist_ok=True)
        self.actions_at_start = self.action_count
        run = self.run = Podgpu(self.machine, self.story.commit, self.story.sources)
        await run.started()
        self._running = {container: dict(holds) for container, holds in action.running.items()}
        self._allocated, self._in_file = dict(action.allocated), {}
        await run.emit("gpus", DevicesDiscovered(tuple(DEVICES[name] for name in action.devices)))
        await run.emit("pods", PodsReplaced(tuple(map(pod_of, PODS)), FOREVER))
        await run.emit("kubelet", self._kubelet_claims())
        await run.emit("file", self._file_claims())
        for source in ("other", "kernel"):
            await run.emit(source, XidsReported(()))
        await run.emit("pods", ALIASES)
        if not action.late:
            await run.emit("runtime", self._running_containers())

    async def _end(self, action: Action) -> None:
        run, machine = self.run, self.machine
        assert run is not None
        page, written, when = run.snapshot, self.written, self.written_at
        before = machine.path
        if isinstance(action, Killed):
            machine.runs += 1
            machine.path.parent.mkdir()
            for end in ("", "-wal"):
                shutil.copyfile(f"{before}{end}", f"{machine.path}{end}")
            await run.stop()
            shutil.rmtree(before.parent)
        else:
            await run.stop()
            written, when = len(self._actions), self.accumulated_at
        self.run = None
        copy = machine.path.parent / f"after-{len(self.results)}.db"
        for end in ("", "-wal"):
            if Path(f"{machine.path}{end}").exists():
                shutil.copyfile(f"{machine.path}{end}", f"{copy}{end}")
        ended = "killed" if isinstance(action, Killed) else "stopped"
        copy = copy.rename(machine.folder / f"after-{len(self.results)}.db")
        log = machine.path.parent / f"after-{len(self.results)}.db-wal"
        if log.exists():
            log.rename(machine.folder / log.name)
        self.results.append(RunResult(self._actions, page, copy, action.at, ended, written, when))
        self._actions, self.written, self.accumulated = [], 0, 0

    async def _perform(self, run: Podgpu, action: Action) -> None:
        match action:
            case ContainerChanged(container=container, holds=None):
                self._running.pop(container, None)
                await run.emit("runtime", ContainerStopped(ref(container).container_id))
            case ContainerChanged(container=container, holds=holds):
                assert holds is not None
                self._running[container] = dict(holds)
                await run.emit("runtime", ContainerStarted(running_container(container, holds)))
            case ContainersListed() | RuntimeReported():
                await run.emit("runtime", self._running_containers())
            case KubeletChanged(device=device, container=container):
                self._allocated.pop(device, None)
                if container is not None:
                    self._allocated[device] = container
                await run.emit("kubelet", self._kubelet_claims())
            case PodListChanged(device=device, container=container):
                self._in_file.pop(device, None)
                if container is not None:
                    self._in_file[device] = container
                await run.emit("file", self._file_claims())
            case SamplesReported(samples=samples, by=by):
                await run.emit(
                    by, ProcessesSampled(tuple(self._device_use(one) for one in samples))
                )
            case ErrorReported(device=device, code=code, when=when, by=by):
                names = (
                    ("", DEVICES[device].pci_bus_id)
                    if by == "kernel"
                    else (DEVICES[device].uuid, "")
                )
                report = XidReport(*names, code, self._instant(when))
                await run.emit(by, XidsReported((report,)))
            case DevicesChanged(devices=devices):
                found = tuple(DEVICES[name] for name in devices)
                await run.emit("gpus", DevicesDiscovered(found))
            case Reloaded(what=what):
                await run.reload(what)
            case SourceFailed(source=source):
                await run.fail(source)
            case _:
                await run.settle()

    def _running_containers(self) -> ContainersReplaced:
        return ContainersReplaced(
            tuple(
                running_container(container, holds) for container, holds in self._running.items()
            ),
            FOREVER,
        )

    def _kubelet_claims(self) -> ClaimsReplaced:
        return ClaimsReplaced(
            tuple(
                kubelet_claim(container, device, by_claim=self.story.claims)
                for device, container in self._allocated.items()
            ),
            FOREVER,
        )

    def _file_claims(self) -> ClaimsReplaced:
        return ClaimsReplaced(
            tuple(
                claim(container, d, Evidence.POD_LIST_FILE)
                for d, container in self._in_file.items()
            ),
            FOREVER,
        )

    def _instant(self, moment: int) -> Instant:
        machine = self.machine
        return Instant(moment - machine.booted + 1000 * NS, moment + machine.offset)

    def _device_use(self, sample: Any) -> DeviceUse:
        return DeviceUse(
            DEVICES[sample.device].uuid,
            self._instant(sample.at),
            None if sample.since is None else self._instant(sample.since),
            tuple(
                ProcessUse(
                    number,
                    number,
                    None if one.container is None else owner(one.container),
                    "mps" if one.client else "compute" if one.running else "",
                    one.memory,
                    one.busy,
                )
                for number, one in enumerate(sample.processes)
            ),
            sample.used,
            0 if sample.used is not None else None,
            sample.busy,
            sample.energy,
            sample.valid_for,
            sample.listed,
            sample.mps,
        )


@contextmanager
def patched(player: Player) -> Iterator[None]:
    """Give podgpu the story's sources, and run blocking calls in the event loop's thread."""

    async def run(ctx: SourceContext) -> None:
        assert player.run is not None
        await player.run.run_source(ctx)

    def build(kind: str, options: object) -> Any:
        return SimpleNamespace(run=run)

    put = LedgerFile.put

    def write(file: LedgerFile, batch: Any) -> Any:
        report = put(file, batch)
        # Everything that podgpu writes contains its start.
        player.written, player.written_at = (
            max(player.accumulated, player.actions_at_start),
            player.accumulated_at,
        )
        return report

    add = LedgerAccumulator.add_snapshot

    def add_snapshot(self: LedgerAccumulator, snapshot: Snapshot) -> None:
        add(self, snapshot)
        # A new accumulator may get a snapshot from before.
        player.accumulated_at = player.machine.elapsed_at(snapshot.at)
        player.accumulated = player.actions_until(player.accumulated_at)

    level = logging.getLogger("podgpu").level
    logging.getLogger("podgpu").setLevel(logging.CRITICAL)
    try:
        with (
            mock.patch.object(source_set, "build_source", build),
            mock.patch.object(ledger_sink, "DaemonExecutor", InlineExecutor),
            mock.patch.object(LedgerFile, "put", write),
            mock.patch.object(LedgerAccumulator, "add_snapshot", add_snapshot),
            mock.patch.object(ledger_file, "boot_id", player.machine.boot),
            mock.patch.object(runtimes, "settle"),
        ):
            yield
    finally:
        logging.getLogger("podgpu").setLevel(level)
