"""One run of the source: rounds on time, forced readings, and what is told of both."""

import asyncio
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, Device, DevicesDiscovered, Reading, SamplesTaken, XidsReported
from sources.nvml import codes, pci_sysfs
from sources.nvml.gpm import METRICS
from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.nvlink_counters import RATES, TOTALS
from sources.nvml.open_errors import OPENING
from sources.nvml.options import Options
from sources.nvml.process_sampler import ProcessSampler
from sources.nvml.read_plan import FORCED, ReadingRequest
from sources.nvml.readers import GpuReadings
from sources.nvml.sampling_jobs import DrainJob, ForcedReadJob, OpenJob, ReadJob
from sources.nvml.state import NvmlState
from sources.nvml.topology_poller import TopologyPoller
from sources.nvml.xid_counts import FIELDS
from sources.nvml.xid_watch import Unwatched, Watched, WatchReport, XidWatch

EARLY_NS: Final = NS
"""How long after the first round a second one follows where rounds are far apart."""

MAX_FAILED_ROUNDS: Final = 3
"""In so many rounds all GPUs have to fail alike before NVML is initialised anew."""

BETWEEN: Final = frozenset({*METRICS, *TOTALS, *RATES})
"""Fields that tell what was between two looks."""


class Sampler:
    """Samples until it is cancelled or the driver goes away.

    Args:
        ctx: the source's context.
        options: the source's options.
        state: what there is from earlier runs.
        sysfs_root: where sysfs is mounted.
    """

    def __init__(
        self,
        ctx: SourceContext,
        options: Options,
        state: NvmlState,
        sysfs_root: Path = pci_sysfs.ROOT,
    ) -> None:
        self._ctx = ctx
        self._options = options
        self._state = state
        self._workers = state.workers
        self._history = state.history
        window_ns = round(options.clock_events_window * NS)
        memory = self._history
        counted = memory.counting_clock_events(window_ns)
        self._wanted = ReadingRequest.of(ctx.plan, options, counted, memory.pcie_totals)
        self._inventory = Inventory(state.nvml, self._wanted, ctx.clock.now, self._history.by_index)
        self._topology_poller = TopologyPoller(ctx, state, self._inventory, sysfs_root)
        self._process_sampler: ProcessSampler | None = None
        if options.usage and options.processes:
            self._process_sampler = ProcessSampler(
                ctx, options, state, self._inventory, announce=self._announce, count=self._add
            )
        self._announced: tuple[Device, ...] | None = None
        self._stuck: frozenset[str] = frozenset()
        self._rescan = False
        self._followed: dict[int, Gpu] = {}
        self._xids_event: set[str] = set()
        self._reports = state.xid_reports
        self._xids_pending = asyncio.Event()
        if self._reports.pending:
            self._xids_pending.set()
        self._own_watch = False
        self._failed_rounds = 0
        self._forced_ns: dict[str, int] = {}

    async def run(self) -> None:
        """Open NVML and sample.

        Raises:
            TransientError: NVML can't be used now.
            PermanentError: the option `devices` names some that aren't there, and weren't before.
        """
        await self._workers.run(OpenJob(self._inventory))
        self._check_driver()
        if self._history.present_once != self._wanted.choice:
            if why := self._inventory.contradiction():
                raise PermanentError(f"devices: {self._options.devices}: {why}")
            self._history.present_once = self._wanted.choice
        await self._announce()
        self._start_watch()
        failed: TransientError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._run_rounds())
                tasks.create_task(self._follow_hints())
                tasks.create_task(self._emit_xids())
                if self._process_sampler is not None:
                    tasks.create_task(self._process_sampler.run())
        except* TransientError as group:
            found = [e for e in group.exceptions if isinstance(e, TransientError)]
            gone = [e for e in found if isinstance(e, codes.DriverGoneError)]
            failed = (gone or found)[0]
        if failed is not None:
            raise failed

    def _start_watch(self) -> None:
        """Start waiting for XIDs, unless a thread does, or one of an earlier run still has to end.

        That one is in the driver: a second would only join it there. Accounts tell of XIDs too,
        whatever fields are asked for.
        """
        kept, accounts = self._state, self._process_sampler is not None
        wanted = accounts or self._ctx.plan.any_of(*FIELDS)
        if not wanted or (kept.xid_watch and kept.xid_watch.is_alive()):
            return
        self._ctx.meter.add("podgpu_source_dropped_total", 0, reason="xids")
        kept.xid_watch = XidWatch(kept.nvml, self._ctx.clock, self._on_watch_report)
        kept.xid_watch.start()
        self._own_watch = True
        self._followed = self._inventory.gpus
        kept.xid_watch.set_targets(self._followed.values())

    async def _run_rounds(self) -> None:
        """Run a round at each tick. Ticks lie on a grid: a late one is left out and counted."""
        clock, meter = self._ctx.clock, self._ctx.meter
        interval, slow_interval = (
            round(self._options.interval * NS),
            round(self._options.slow_interval * NS),
        )
        due = slow_due = clock.now().mono_ns
        early: int | None = due + EARLY_NS
        while True:
            slow = due >= slow_due
            while slow_due <= due:
                slow_due += slow_interval
            await self._round(due, slow=slow)
            if early is not None and interval > 2 * EARLY_NS and self._ctx.plan.any_of(*BETWEEN):
                # What lies between two looks would else be missing for a whole interval at first.
                await self._drain(early)
                await self._round(early, slow=True)
            early = None
            due += interval
            late = clock.now().mono_ns - due
            if late > 0:
                missed = late // interval + 1
                meter.add("podgpu_samples_skipped_total", missed)
                due += missed * interval
            await self._drain(due)

    async def _drain(self, until_ns: int) -> None:
        """Take the driver's own samples before they are lost, until the next round takes them."""
        while True:
            stuck = self._workers.stuck
            gpus = [gpu for gpu in self._inventory.gpus.values() if gpu.uuid not in stuck]
            soonest = min((gpu.drain_due_ns for gpu in gpus), default=math.inf)
            if soonest >= until_ns:
                return
            await self._workers.run(DrainJob(gpus, due_ns=int(soonest)))

    async def _round(self, due_ns: int, *, slow: bool) -> None:
        inventory = self._inventory
        rescan = self._rescan or (slow and inventory.has_failures)
        work = ReadJob(inventory, slow=slow, rescan=rescan, due_ns=due_ns)
        self._rescan = False
        try:
            await self._workers.run(work, lambda: self._publish_visited(work.take()))
        except TransientError:
            # What was read before that is as good as ever.
            await self._publish_visited(work.take(), self._workers.stuck)
            raise
        if work.started is not None and work.ended is not None:
            spent = work.started.seconds_until(work.ended)
            self._ctx.meter.observe("podgpu_sample_duration_seconds", spent)
        told = frozenset(work.published)
        sheets = work.take()
        await self._announce()
        await self._publish(sheets, [u for u in self._history.gpus if u not in told], slow=slow)
        self._check_driver()
        await self._topology_poller.after_round(slow=slow)
        if slow:
            self._start_watch()
            self._log_left_out()

    def _check_driver(self) -> None:
        """Initialise NVML anew if nothing at all works, unless a call hangs: that says more.

        Where the driver still counts its GPUs, they have to fail for some rounds: one after the
        other may come back.

        Raises:
            DriverGoneError: nothing works.
        """
        dark = self._inventory.all_unknown and not self._workers.stuck
        self._failed_rounds = self._failed_rounds + 1 if dark else 0
        if self._failed_rounds >= (1 if self._inventory.count_unknown else MAX_FAILED_ROUNDS):
            raise codes.DriverGoneError(
                codes.UNKNOWN,
                f"all GPUs answer {codes.name(codes.UNKNOWN)} ({codes.UNKNOWN}): NVML is "
                f"initialised anew; if that doesn't help, {OPENING[codes.UNKNOWN]}",
            )

    async def _publish_visited(
        self, sheets: list[GpuReadings], stuck: Collection[str] = frozenset()
    ) -> None:
        """Emit what a round has brought so far."""
        judged = {sheet.uuid for sheet in sheets} | frozenset(stuck)
        if not judged:
            self._count(())
            return
        await self._announce()
        known = [uuid for uuid in self._history.gpus if uuid in judged]
        await self._publish(sheets, known, slow=False)

    async def _publish(self, sheets: list[GpuReadings], judged: list[str], *, slow: bool) -> None:
        """Emit what a round brought; of the GPUs judged, those that aren't up are down."""
        ctx, memory, watch = self._ctx, self._history, self._state.xid_watch
        self._count(sheets)
        up = {sheet.uuid for sheet in sheets if sheet.up}
        if up:
            self._state.attempts = 0
        returned = self._log_state_changes(sheets, judged, up)
        gpus = self._inventory.gpus
        if watch is not None and self._own_watch and (returned or gpus is not self._followed):
            self._followed = gpus
            watch.set_targets(gpus.values(), renew=returned)
        at, good = ctx.clock.now(), self._wanted.fast_good_ns
        readings: list[Reading] = []
        if "gpu_up" in ctx.plan:
            visits = {sheet.uuid: sheet.at for sheet in sheets}
            readings += [
                Reading(
                    uuid, "gpu_up", (), 1 if uuid in up else 0, None, visits.get(uuid, at), good
                )
                # A last word on those that leave, since a 0 of one may stand for ever.
                for uuid in (*self._shown(judged), *memory.departing)
            ]
        readings += memory.xids.readings(
            memory.xids.with_errors(memory.departing), ctx.plan, at, good
        )
        memory.departing.clear()
        for sheet in sheets:
            readings += self._not_older(sheet)
        if slow:
            present = [devices[0].uuid for devices in self._inventory.by_index.values()]
            readings += memory.xids.readings(
                self._shown(present), ctx.plan, at, self._wanted.slow_good_ns
            )
        processes = [listed for sheet in sheets for listed in sheet.processes]
        await ctx.emit(SamplesTaken(tuple(readings), tuple(processes)))

    def _not_older(self, sheet: GpuReadings) -> list[Reading]:
        """Leave out what was forced after the visit: a counter must not go back."""
        forced_ns = self._forced_ns.pop(sheet.uuid, None)
        if forced_ns is None:
            return sheet
        return [r for r in sheet if r.field not in FORCED or r.at.mono_ns > forced_ns]

    async def _announce(self) -> None:
        devices = self._inventory.devices
        if devices is not self._announced:
            self._announced = devices
            self._history.update(self._inventory.by_index, self._wanted.choice)
            self._history.outage_reported = False
            await self._ctx.emit(DevicesDiscovered(devices))

    def _shown(self, uuids: Iterable[str]) -> list[str]:
        """Return those of the GPUs that were asked for."""
        return [uuid for uuid in uuids if uuid not in self._history.hidden]

    def _count(self, sheets: Iterable[GpuReadings]) -> None:
        # By GPU, also what failed on a MIG instance: there is no end to the uuids of instances.
        errors = [(sheet.uuid, code) for sheet in sheets for code in sheet.errors]
        # The thread may add to them meanwhile.
        while self._inventory.errors:
            errors.append(self._inventory.errors.pop())
        self._add(errors)

    def _add(self, errors: Iterable[tuple[str, int]]) -> None:
        for uuid, code in errors:
            self._ctx.meter.add(
                "podgpu_sample_errors_total", device=uuid or "driver", error=codes.name(code)
            )

    def _log_state_changes(
        self, sheets: list[GpuReadings], judged: list[str], up: set[str]
    ) -> bool:
        """Log which GPUs went down or came back; True if one came back."""
        ctx, memory = self._ctx, self._history
        stuck = self._workers.stuck
        self._rescan |= bool(self._stuck - stuck)
        for place in stuck - self._stuck:
            ctx.meter.add("podgpu_sample_errors_total", device=place, error="hangs")
        self._stuck = stuck
        why = {sheet.uuid: sheet.errors[0] for sheet in sheets if sheet.errors}
        returned = False
        for uuid in judged:
            if uuid in up:
                if uuid in memory.down:
                    memory.down.discard(uuid)
                    returned = True
                    ctx.log.warning("%s answers again", memory.describe(uuid))
            elif uuid not in memory.down:
                memory.down.add(uuid)
                if uuid in stuck:
                    reason = "the driver hangs in it"
                elif uuid in why:
                    reason = f"the driver answers {codes.name(why[uuid])}"
                else:
                    reason = "it can't be enumerated"
                ctx.log.error("%s is down: %s", memory.describe(uuid), reason)
        return returned

    async def _follow_hints(self) -> None:
        async for hint in self._ctx.hints():
            gpus = self._inventory.find(hint.devices)
            if not gpus:
                continue
            work = ForcedReadJob(gpus)
            await self._workers.run(work)
            self._count(work.sheets)
            for sheet in work.sheets:
                self._forced_ns[sheet.uuid] = sheet.at.mono_ns
            readings = tuple(reading for sheet in work.sheets for reading in sheet)
            if readings:
                await self._ctx.emit(SamplesTaken(readings))
            if self._process_sampler is not None:
                await self._process_sampler.sample_now(gpus)

    def _on_watch_report(self, report: WatchReport) -> None:
        xids = self._history.xids
        if isinstance(report, Unwatched):
            what = self._history.describe(report.uuid) if report.uuid else "all GPUs"
            if self._history.is_first("xid", report.uuid):
                self._ctx.log.warning(
                    "no XID errors of %s: the driver answers %s", what, codes.name(report.code)
                )
            return
        if isinstance(report, Watched):
            xids.start_watching(report.uuid, self._ctx.clock.now())
        else:
            xids.add(report.uuid, report.code, report.at)
            if not self._reports.add(report, self._inventory.devices):
                self._ctx.meter.add("podgpu_source_dropped_total", reason="xids")
            left = self._history.xid_log.admit(report.uuid, report.code, report.at)
            if left is not None:
                self._log_xid(report.uuid, report.code, left)
        self._xids_event.add(report.uuid)
        self._xids_pending.set()

    def _log_left_out(self) -> None:
        for uuid, code, left in self._history.xid_log.overdue(self._ctx.clock.now()):
            self._log_xid(uuid, code, left)

    def _log_xid(self, uuid: str, code: int, left: int) -> None:
        """Log an XID, with the number of those before it that weren't logged."""
        what, args = "XID %d on %s", [code, self._history.describe(uuid)]
        if left:
            what, args = f"{what}; since it was last logged there were %d more", [*args, left]
        self._ctx.log.warning(what, *args)

    async def _emit_xids(self) -> None:
        """Emit XID errors, and a GPU's readings of them, at once, not with the next round."""
        ctx = self._ctx
        while True:
            await self._xids_pending.wait()
            self._xids_pending.clear()
            news, self._xids_event = self._xids_event, set()
            if reports := self._reports.pending:
                await ctx.emit(XidsReported(reports))
                self._reports.mark_reported(len(reports))
            readings = self._history.xids.readings(
                self._shown(sorted(news)), ctx.plan, ctx.clock.now(), self._wanted.slow_good_ns
            )
            if readings:
                await ctx.emit(SamplesTaken(tuple(readings)))
