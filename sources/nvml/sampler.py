"""One run of the source: rounds on time, forced readings, and what is told of both."""

import asyncio
from collections.abc import Collection, Iterable

from pipeline.contracts import SourceContext
from pipeline.errors import TransientError
from pipeline.model import NS, Device, DevicesDiscovered, Reading, SamplesTaken
from sources.nvml import codes
from sources.nvml.crew import Crew
from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.library import Library
from sources.nvml.memory import Memory
from sources.nvml.options import Options
from sources.nvml.plan import Wanted
from sources.nvml.readers import Sheet
from sources.nvml.rounds import Forced, Opening, Round
from sources.nvml.watch import Report, Unwatched, Watched, XidWatch
from sources.nvml.xids import FIELDS


class Sampler:
    """Samples until it is cancelled or the driver goes away.

    Args:
        ctx: the source's context.
        options: the source's options.
        nvml: the library.
        crew: the threads.
        memory: what is known from earlier runs.
        watch: the thread that waited for XIDs in an earlier run, if it may still do.

    Attributes:
        watch: the thread that waits for XIDs, or did.
    """

    def __init__(
        self,
        ctx: SourceContext,
        options: Options,
        nvml: Library,
        crew: Crew,
        memory: Memory,
        *,
        watch: XidWatch | None = None,
    ) -> None:
        self._ctx = ctx
        self._options = options
        self._crew = crew
        self._memory = memory
        self._wanted = Wanted.of(ctx.plan, options)
        self._inventory = Inventory(nvml, self._wanted, ctx.clock.now, memory.by_index)
        self._nvml = nvml
        self._announced: tuple[Device, ...] | None = None
        self._stuck: frozenset[str] = frozenset()
        self._rescan = False
        self._followed: dict[int, Gpu] = {}
        self._news: set[str] = set()
        self._has_news = asyncio.Event()
        self.watch = watch
        self._own_watch = False

    async def run(self) -> None:
        """Open NVML and sample.

        Raises:
            TransientError: NVML can't be used now.
        """
        await self._crew.run(Opening(self._inventory))
        await self._announce()
        self._start_watch()
        failed: TransientError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_time())
                tasks.create_task(self._follow_hints())
                tasks.create_task(self._tell_xids())
        except* TransientError as group:
            found = [e for e in group.exceptions if isinstance(e, TransientError)]
            gone = [e for e in found if isinstance(e, codes.DriverGoneError)]
            failed = (gone or found)[0]
        if failed is not None:
            raise failed

    def _start_watch(self) -> None:
        """Start waiting for XIDs, unless a thread does, or one of an earlier run still has to end.

        That one is in the driver: a second would only join it there.
        """
        if not self._ctx.plan.any_of(*FIELDS) or (self.watch and self.watch.is_alive()):
            return
        self.watch = XidWatch(self._nvml, self._ctx.clock, self._hear)
        self.watch.start()
        self._own_watch = True
        self._followed = self._inventory.gpus
        self.watch.follow(self._followed.values())

    async def _keep_time(self) -> None:
        """Run a round at each tick. Ticks lie on a grid: a late one is left out and counted."""
        clock, meter = self._ctx.clock, self._ctx.meter
        interval, slow_interval = (
            round(self._options.interval * NS),
            round(self._options.slow_interval * NS),
        )
        due = slow_due = clock.now().mono_ns
        while True:
            slow = due >= slow_due
            while slow_due <= due:
                slow_due += slow_interval
            await self._round(due, slow=slow)
            due += interval
            late = clock.now().mono_ns - due
            if late > 0:
                missed = late // interval + 1
                meter.add("podgpu_samples_skipped_total", missed)
                due += missed * interval

    async def _round(self, due_ns: int, *, slow: bool) -> None:
        inventory = self._inventory
        rescan = self._rescan or (slow and inventory.troubled)
        work = Round(inventory, slow=slow, rescan=rescan, due_ns=due_ns)
        self._rescan = False
        try:
            await self._crew.run(work)
        except TransientError as error:
            # What was read before that is as good as ever.
            visited = {sheet.uuid for sheet in work.sheets} | self._crew.stuck
            gone = isinstance(error, codes.DriverGoneError)
            await self._publish(work.sheets, self._memory.gpus if gone else visited, slow=slow)
            raise
        if work.begun is not None and work.ended is not None:
            spent = work.begun.seconds_until(work.ended)
            self._ctx.meter.observe("podgpu_sample_duration_seconds", spent)
        await self._publish(work.sheets, self._memory.gpus, slow=slow)
        if slow:
            self._start_watch()

    async def _publish(self, sheets: list[Sheet], judged: Collection[str], *, slow: bool) -> None:
        """Emit what a round brought; of the GPUs judged, those that aren't up are down."""
        ctx, memory = self._ctx, self._memory
        await self._announce()
        self._count(sheets)
        up = {sheet.uuid for sheet in sheets if sheet.up}
        gpus_judged = [uuid for uuid in memory.gpus if uuid in judged]
        returned = self._note_states(sheets, gpus_judged, up)
        gpus = self._inventory.gpus
        if self.watch is not None and self._own_watch and (returned or gpus is not self._followed):
            self._followed = gpus
            self.watch.follow(gpus.values(), renew=returned)
        at, good = ctx.clock.now(), self._wanted.fast_good_ns
        readings: list[Reading] = []
        if "gpu_up" in ctx.plan:
            readings += [
                Reading(uuid, "gpu_up", (), 1 if uuid in up else 0, None, at, good)
                for uuid in gpus_judged
            ]
        for sheet in sheets:
            readings += sheet
        if slow:
            present = [devices[0].uuid for devices in self._inventory.by_index.values()]
            readings += memory.xids.readings(present, ctx.plan, at, self._wanted.slow_good_ns)
        processes = [listed for sheet in sheets for listed in sheet.processes]
        await ctx.emit(SamplesTaken(tuple(readings), tuple(processes)))

    async def _announce(self) -> None:
        devices = self._inventory.devices
        if devices is not self._announced:
            self._announced = devices
            self._memory.note(self._inventory.by_index)
            await self._ctx.emit(DevicesDiscovered(devices))

    def _count(self, sheets: Iterable[Sheet]) -> None:
        errors = [error for sheet in sheets for error in sheet.errors]
        errors += self._inventory.errors
        self._inventory.errors = []
        for uuid, code in errors:
            self._ctx.meter.add(
                "podgpu_sample_errors_total", device=uuid or "driver", error=codes.name(code)
            )

    def _note_states(self, sheets: list[Sheet], judged: list[str], up: set[str]) -> bool:
        """Log which GPUs went down or came back; True if one came back."""
        ctx, memory = self._ctx, self._memory
        stuck = self._crew.stuck
        self._rescan |= bool(self._stuck - stuck)
        for place in stuck - self._stuck:
            ctx.meter.add("podgpu_sample_errors_total", device=place, error="hangs")
        self._stuck = stuck
        why = {sheet.uuid: sheet.errors[0][1] for sheet in sheets if sheet.errors}
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
                    reason = "it can't be enumerated, or the driver is gone"
                ctx.log.error("%s is down: %s", memory.describe(uuid), reason)
        return returned

    async def _follow_hints(self) -> None:
        async for hint in self._ctx.hints():
            gpus = self._inventory.find(hint.devices)
            if not gpus:
                continue
            work = Forced(gpus)
            await self._crew.run(work)
            self._count(work.sheets)
            readings = tuple(reading for sheet in work.sheets for reading in sheet)
            if readings:
                await self._ctx.emit(SamplesTaken(readings))

    def _hear(self, report: Report) -> None:
        xids = self._memory.xids
        if isinstance(report, Unwatched):
            what = self._memory.describe(report.uuid) if report.uuid else "all GPUs"
            if self._memory.first_time("xid", report.uuid):
                self._ctx.log.warning(
                    "no XID errors of %s: the driver answers %s", what, codes.name(report.code)
                )
            return
        if isinstance(report, Watched):
            xids.begin(report.uuid)
        else:
            xids.add(report.uuid, report.code, report.at)
            self._ctx.log.warning("XID %d on %s", report.code, self._memory.describe(report.uuid))
        self._news.add(report.uuid)
        self._has_news.set()

    async def _tell_xids(self) -> None:
        """Emit a GPU's XID readings as soon as they change, not with the next round."""
        ctx = self._ctx
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            news, self._news = self._news, set()
            readings = self._memory.xids.readings(
                sorted(news), ctx.plan, ctx.clock.now(), self._wanted.slow_good_ns
            )
            if readings:
                await ctx.emit(SamplesTaken(tuple(readings)))
