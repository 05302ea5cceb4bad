"""One run of the source: scheduled rounds, forced readings, and the events for both."""

import asyncio
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SourceContext
from pipeline.fields.xid_catalogue import sentence
from pipeline.model import NS, Device, DevicesDiscovered, Reading, SamplesTaken, XidsReported
from sources.nvml import codes
from sources.nvml.event_counts import FIELDS
from sources.nvml.gpm import METRICS
from sources.nvml.inventory import Inventory
from sources.nvml.nvlink_readers import RATES, TOTALS
from sources.nvml.options import Options
from sources.nvml.read_plan import FORCED
from sources.nvml.reader_parts import GpuReadings, ReadingRequest
from sources.nvml.restart_state import NvmlState
from sources.nvml.topology_poller import TopologyPoller
from sources.nvml.usage_scheduler import UsageScheduler
from sources.nvml.worker_pool import Job, Step
from sources.nvml.xid_watch import XidEvent, XidWatch

EARLY_NS: Final = NS
"""Nanoseconds from the first round to a second one. There is a second round if the interval is
longer than twice this time and a field of `BETWEEN` is requested."""

MAX_FAILED_ROUNDS: Final = 3
"""In how many successive rounds all GPUs must fail before podgpu initialises NVML again."""

BETWEEN: Final = frozenset(
    {*METRICS, *TOTALS, *(name for names in RATES.values() for name in names)}
)
"""Fields whose values cover the time between two rounds."""


class ReadingSampler:
    """Samples until it is cancelled or the driver goes away.

    Args:
        ctx: the source's context.
        options: the source's options.
        state: the state from earlier runs.
        sysfs_root: where sysfs is mounted.
    """

    def __init__(
        self,
        ctx: SourceContext,
        options: Options,
        state: NvmlState,
        sysfs_root: Path,
    ) -> None:
        self._ctx = ctx
        self._options = options
        self._state = state
        self._workers = state.workers
        counted = state.counting_clock_events(round(options.clock_events_window * NS))
        self._wanted = ReadingRequest.of(ctx.plan, options, counted, state.pcie_totals)
        self._inventory = Inventory(state.nvml, self._wanted, ctx.clock.now, state.by_index)
        self._topology_poller = TopologyPoller(ctx, state, self._inventory, sysfs_root)
        self._usage_sampler: UsageScheduler | None = None
        if options.usage and options.processes:
            self._usage_sampler = UsageScheduler(
                ctx, options, state, self._inventory, self._announce, count=self._add_errors
            )
        self._announced: tuple[Device, ...] | None = None
        self._stuck: frozenset[str] = frozenset()
        self._rescan = False
        self._xids_changed: set[str] = set()
        self._xids_pending = asyncio.Event()
        if self._state.xid_reports.pending:
            self._xids_pending.set()
        self._watch: XidWatch | None = None
        self._failed_rounds = 0
        self._forced_ns: dict[str, int] = {}

    async def run(self) -> None:
        """Open NVML and sample.

        Raises:
            TransientError: NVML cannot be used now.
            PermanentError: the option `devices` names devices that never existed on this node.
        """
        await self._workers.run(Job(self._inventory.open_steps()))
        self._check_driver()
        if self._state.present_once != self._wanted.choice:
            if why := self._inventory.contradiction():
                raise PermanentError(f"devices: {self._options.devices}: {why}")
            self._state.present_once = self._wanted.choice
        await self._announce()
        self._start_watch()
        failed: TransientError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._run_rounds())
                tasks.create_task(self._follow_hints())
                tasks.create_task(self._emit_xids())
                if self._usage_sampler is not None:
                    tasks.create_task(self._usage_sampler.run())
        except* TransientError as group:
            found = [e for e in group.exceptions if isinstance(e, TransientError)]
            gone = [e for e in found if isinstance(e, codes.DriverGoneError)]
            failed = (gone or found)[0]
        if failed is not None:
            raise failed

    def _start_watch(self) -> None:
        """Start the thread that waits for XID errors, unless one is alive, even of an earlier run.

        An old thread is still in the driver, and a second one would only wait there too. Usage
        accounts need XID errors even if no XID field is requested.
        """
        state, accounts = self._state, self._usage_sampler is not None
        wanted = accounts or self._ctx.plan.any_of(*FIELDS)
        if not wanted or (state.xid_watch and state.xid_watch.is_alive()):
            return
        self._ctx.meter.add("podgpu_source_dropped_total", 0, reason="xids")
        watch = XidWatch(state.nvml, self._ctx.clock, self._on_xid, self._on_registered)
        watch.start()
        watch.set_targets(self._inventory.gpus.values())
        self._watch = state.xid_watch = watch

    async def _run_rounds(self) -> None:
        """Run a round at each multiple of the interval since the start.

        A second round may follow soon after the first. A round that is too late is left out and
        counted.
        """
        clock, meter = self._ctx.clock, self._ctx.meter
        interval = round(self._options.interval * NS)
        slow_interval = round(self._options.slow_interval * NS)
        due = slow_due = clock.now().mono_ns
        # Fields between two rounds would otherwise be missing for the first interval.
        has_second = interval > 2 * EARLY_NS and self._ctx.plan.any_of(*BETWEEN)
        second_ns = due + EARLY_NS
        while True:
            slow = due >= slow_due
            while slow_due <= due:
                slow_due += slow_interval
            await self._round(due, slow=slow)
            if has_second:
                has_second = False
                await self._drain(second_ns)
                await self._round(second_ns, slow=True)
            due += interval
            late = clock.now().mono_ns - due
            if late > 0:
                missed = late // interval + 1
                meter.add("podgpu_samples_skipped_total", missed)
                due += missed * interval
            await self._drain(due)

    async def _drain(self, until_ns: int) -> None:
        """Read the driver's own samples before it overwrites them, until the next round is due."""
        while True:
            stuck = self._workers.stuck
            gpus = [gpu for gpu in self._inventory.gpus.values() if gpu.uuid not in stuck]
            soonest = min((gpu.drain_due_ns for gpu in gpus), default=math.inf)
            if soonest >= until_ns:
                return
            steps = (Step(gpu.uuid, gpu.drain) for gpu in gpus)
            await self._workers.run(Job(steps, due_ns=int(soonest)))

    async def _round(self, due_ns: int, *, slow: bool) -> None:
        inventory = self._inventory
        rescan = self._rescan or (slow and inventory.has_failures)
        steps = inventory.read_steps(slow=slow, rescan=rescan)
        job: Job[GpuReadings] = Job(steps, due_ns=due_ns)
        self._rescan = False
        visited: set[str] = set()

        async def publish_visited(stuck: Collection[str] = ()) -> None:
            results = job.take()
            visited.update(result.uuid for result in results)
            judged = {result.uuid for result in results} | frozenset(stuck)
            if judged:
                await self._announce()
                await self._publish(results, judged, slow=False)
            else:
                self._count_errors(())

        try:
            await self._workers.run(job, publish_visited)
        except TransientError:
            # Readings from before the error are valid.
            await publish_visited(self._workers.stuck)
            raise
        if job.started is not None and job.ended is not None:
            duration = job.started.seconds_until(job.ended)
            self._ctx.meter.observe("podgpu_sample_duration_seconds", duration)
        await self._announce()
        await self._publish(job.take(), self._state.gpus.keys() - visited, slow=slow)
        self._check_driver()
        await self._topology_poller.after_round(slow=slow)
        if slow:
            self._start_watch()
            for uuid, code, unlogged in self._state.xids.overdue(self._ctx.clock.now()):
                self._log_xid(uuid, code, unlogged)

    def _check_driver(self) -> None:
        """Raise if all GPUs fail, so that NVML is initialised again, unless a call hangs.

        A call that hangs explains the failure better. While the driver still counts its GPUs, they
        must fail for several rounds: they may come back one by one.

        Raises:
            DriverGoneError: no GPU that is read works.
        """
        all_failed = self._inventory.all_unknown and not self._workers.stuck
        self._failed_rounds = self._failed_rounds + 1 if all_failed else 0
        if self._failed_rounds >= (1 if self._inventory.count_unknown else MAX_FAILED_ROUNDS):
            raise codes.DriverGoneError(
                codes.UNKNOWN,
                f"all GPUs report {codes.name(codes.UNKNOWN)} ({codes.UNKNOWN}): podgpu "
                f"initialises NVML again; if that does not help, {codes.OPENING[codes.UNKNOWN]}",
            )

    async def _publish(
        self, results: list[GpuReadings], uuids: Collection[str], *, slow: bool
    ) -> None:
        """Emit the results of a round. A GPU in `uuids` without a successful result is down."""
        ctx, state = self._ctx, self._state
        judged = [uuid for uuid in state.gpus if uuid in uuids]
        self._count_errors(results)
        up = {result.uuid for result in results if result.up}
        if up:
            state.attempts = 0
        returned = self._log_state_changes(results, judged, up)
        if self._watch is not None:
            self._watch.set_targets(self._inventory.gpus.values(), renew=returned)
        at, valid_ns = ctx.clock.now(), self._wanted.fast_valid_ns
        readings: list[Reading] = []
        if "gpu_up" in ctx.plan:
            times = {result.uuid: result.at for result in results}
            readings += [
                Reading(uuid, "gpu_up", (), int(uuid in up), None, times.get(uuid, at), valid_ns)
                # Departing GPUs get one last reading, since a 0 of an outage never expires.
                for uuid in (*self._selected(judged), *state.departing)
            ]
        readings += state.xids.readings(
            state.xids.with_errors(state.departing), ctx.plan, at, valid_ns
        )
        state.departing.clear()
        for result in results:
            readings += self._without_superseded(result)
        if slow:
            present = [devices[0].uuid for devices in self._inventory.by_index.values()]
            readings += state.xids.readings(
                self._selected(present), ctx.plan, at, self._wanted.slow_valid_ns
            )
        processes = [listed for result in results for listed in result.processes]
        await ctx.emit(SamplesTaken(tuple(readings), tuple(processes)))

    def _without_superseded(self, result: GpuReadings) -> list[Reading]:
        """Leave out readings older than a forced one: a counter must not decrease."""
        forced_ns = self._forced_ns.pop(result.uuid, None)
        if forced_ns is None:
            return result
        return [r for r in result if r.field not in FORCED or r.at.mono_ns > forced_ns]

    async def _announce(self) -> None:
        devices = self._inventory.devices
        if devices is not self._announced:
            self._announced = devices
            self._state.update(self._inventory.by_index, self._wanted.choice)
            self._state.outage_reported = False
            await self._ctx.emit(DevicesDiscovered(devices))

    def _selected(self, uuids: Iterable[str]) -> list[str]:
        """Return those of the GPUs that the option `devices` does not exclude."""
        return [uuid for uuid in uuids if uuid not in self._state.hidden]

    def _count_errors(self, results: Iterable[GpuReadings]) -> None:
        # Errors of MIG instances count for their GPU: the number of instance uuids has no limit.
        errors = [(result.uuid, code) for result in results for code in result.errors]
        # The thread may add errors meanwhile.
        while self._inventory.errors:
            errors.append(self._inventory.errors.pop())
        self._add_errors(errors)

    def _add_errors(self, errors: Iterable[tuple[str, int]]) -> None:
        for uuid, code in errors:
            self._ctx.meter.add(
                "podgpu_sample_errors_total", device=uuid or "driver", error=codes.name(code)
            )

    def _log_state_changes(
        self, results: list[GpuReadings], judged: list[str], up: set[str]
    ) -> bool:
        """Log which GPUs went down or came back; return whether one came back."""
        ctx, state = self._ctx, self._state
        stuck = self._workers.stuck
        self._rescan |= bool(self._stuck - stuck)
        for place in stuck - self._stuck:
            ctx.meter.add("podgpu_sample_errors_total", device=place, error="hangs")
        self._stuck = stuck
        reasons = {
            result.uuid: f"the driver returned {codes.name(result.errors[0])}"
            for result in results
            if result.errors
        }
        reasons |= dict.fromkeys(stuck, "a driver call hangs")
        returned = False
        for uuid in judged:
            if uuid in up:
                if uuid in state.down:
                    state.down.discard(uuid)
                    returned = True
                    ctx.log.warning("%s responds again", state.describe(uuid))
            elif uuid not in state.down:
                state.down.add(uuid)
                reason = reasons.get(uuid, "the driver does not enumerate it")
                ctx.log.error("%s is down: %s", state.describe(uuid), reason)
        return returned

    async def _follow_hints(self) -> None:
        async for hint in self._ctx.hints():
            gpus = self._inventory.find(hint.devices)
            if not gpus:
                continue
            # Between two steps of a running round.
            steps = (Step(gpu.uuid, gpu.read_forced) for gpu in gpus)
            job: Job[GpuReadings] = Job(steps, urgent=True)
            await self._workers.run(job)
            self._count_errors(job.results)
            for result in job.results:
                self._forced_ns[result.uuid] = result.at.mono_ns
            readings = tuple(reading for result in job.results for reading in result)
            if readings:
                await self._ctx.emit(SamplesTaken(readings))
            if self._usage_sampler is not None:
                await self._usage_sampler.sample_now(gpus)

    def _on_xid(self, event: XidEvent) -> None:
        state, uuid, code = self._state, event.uuid, event.code
        unlogged = state.xids.add(uuid, code, event.at)
        pending = event.report(self._inventory.devices)
        if not self._state.xid_reports.add(pending, pending.device, code, event.at.mono_ns):
            self._ctx.meter.add("podgpu_source_dropped_total", reason="xids")
        if unlogged is not None:
            self._log_xid(uuid, code, unlogged)
        self._xids_changed.add(uuid)
        self._xids_pending.set()

    def _on_registered(self, uuid: str, code: int) -> None:
        state, ctx = self._state, self._ctx
        if code == codes.OK:
            state.xids.start_watching(uuid, ctx.clock.now())
            self._xids_changed.add(uuid)
            self._xids_pending.set()
        elif uuid not in state.unwatched:
            state.unwatched.add(uuid)
            ctx.log.warning(
                "cannot watch %s for XID errors: the driver returned %s; a source of kind kernel "
                "can read them from the kernel log",
                state.describe(uuid) if uuid else "all GPUs",
                codes.name(code),
            )

    def _log_xid(self, uuid: str, code: int, unlogged: int) -> None:
        """Log an XID error, with the number of earlier ones that were not logged."""
        more = f"; {unlogged} more since the last log line" if unlogged else ""
        about = f": {text}" if (text := sentence(code)) else ""
        self._ctx.log.warning("XID %d on %s%s%s", code, self._state.describe(uuid), about, more)

    async def _emit_xids(self) -> None:
        """Emit XID errors, and the readings of them, immediately instead of with the next round."""
        ctx = self._ctx
        while True:
            await self._xids_pending.wait()
            self._xids_pending.clear()
            changed, self._xids_changed = self._xids_changed, set()
            if reports := self._state.xid_reports.pending:
                await ctx.emit(XidsReported(reports))
                self._state.xid_reports.mark_reported(len(reports))
            readings = self._state.xids.readings(
                self._selected(sorted(changed)),
                ctx.plan,
                ctx.clock.now(),
                self._wanted.slow_valid_ns,
            )
            if readings:
                await ctx.emit(SamplesTaken(tuple(readings)))
