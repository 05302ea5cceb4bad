"""When it is looked who uses the devices, and when that is told."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.host.procfs import ROOT
from pipeline.model import NS, ProcessesSampled
from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.options import Options
from sources.nvml.owner_thread import Owners
from sources.nvml.sample_owners import pids, use_of
from sources.nvml.state import Kept
from sources.nvml.usage_sample import GpuLooker, Look
from sources.nvml.worker_pool import Job, Step

GOOD_FOR: Final = 3  # intervals

_PATIENCE: Final = 1.0
"""Seconds that looking up processes may take: longer than ever, unless it hangs."""


class Looks(Job):
    """Look at some GPUs.

    Args:
        lookers: of the GPUs.
        urgent: at once, rather than between rounds.
    """

    def __init__(self, lookers: Iterable[GpuLooker], *, urgent: bool) -> None:
        self._looks: list[Look] = []
        super().__init__(
            (Step(one.gpu.uuid, one.look, self._looks.append) for one in lookers),
            urgent=urgent,
            idle=not urgent,
        )

    def take(self) -> list[Look]:
        """Return what was seen since this was last called.

        Safe to call while the job goes on: the thread only appends.
        """
        looks = self._looks[:]
        del self._looks[: len(looks)]
        return looks


class Looking:
    """Looks at all GPUs on a grid of its own, and at those that changed hands at once.

    Args:
        ctx: the source's context.
        options: the source's options.
        kept: what there is from earlier runs.
        inventory: the GPUs.
        announce: tells of the devices that were found, before anything of them is told.
        count: counts what failed: a GPU's uuid, and NVML's code.
    """

    def __init__(
        self,
        ctx: SourceContext,
        options: Options,
        kept: Kept,
        inventory: Inventory,
        *,
        announce: Callable[[], Awaitable[None]],
        count: Callable[[Iterable[tuple[str, int]]], None],
    ) -> None:
        self._ctx = ctx
        self._kept = kept
        self._inventory = inventory
        self._announce = announce
        self._count = count
        self._interval_ns = round(options.usage_interval * NS)
        self._lookers: dict[Gpu, GpuLooker] = {}
        # What is seen later is to be told later.
        self._turn = asyncio.Lock()
        self._under_way: Looks | None = None
        place = (options.proc, options.proc != ROOT)
        if kept.owners.place != place:
            kept.owners = Owners(place[0], chosen=place[1])

    async def run(self) -> None:
        """Look each time that the interval has passed. A look that is late is left out.

        Raises:
            TransientError: NVML can't be used now.
        """
        clock = self._ctx.clock
        due_ns = clock.now().mono_ns
        try:
            while True:
                await self._look(self._inventory.gpus.values(), urgent=False)
                now_ns = clock.now().mono_ns
                due_ns += max(1, -(-(now_ns - due_ns) // self._interval_ns)) * self._interval_ns
                await clock.sleep((due_ns - now_ns) / NS)
        finally:
            self._kept.owners.rest()

    async def at_once(self, gpus: Iterable[Gpu]) -> None:
        """Look at some GPUs now: a pod that is gone in a moment has both ends.

        Raises:
            TransientError: NVML can't be used now.
        """
        if self._under_way is not None:
            self._kept.crew.hurry(self._under_way)
        await self._look(gpus, urgent=True)

    async def _look(self, gpus: Iterable[Gpu], *, urgent: bool) -> None:
        async with self._turn:
            work = self._under_way = Looks(self._of(gpus), urgent=urgent)
            try:
                await self._kept.crew.run(work, lambda: self._tell(work.take()))
            except TransientError:
                # What was seen before that is as good as ever.
                await self._tell(work.take())
                raise
            finally:
                self._under_way = None
            await self._tell(work.take())

    def _of(self, gpus: Iterable[Gpu]) -> list[GpuLooker]:
        """Return what looks at the GPUs; those in which the driver hangs go on from nothing."""
        nvml, now = self._kept.nvml, self._ctx.clock.now
        blind = bool(self._kept.owners.hidden)
        lookers = {
            gpu: self._lookers.get(gpu) or GpuLooker(nvml, gpu, now)
            for gpu in self._inventory.gpus.values()
        }
        self._lookers = lookers
        stuck = self._kept.crew.stuck
        for gpu, looker in lookers.items():
            looker.interrupted |= gpu.uuid in stuck
            looker.blind = blind
        return [lookers[gpu] for gpu in gpus if gpu in lookers]

    async def _tell(self, looks: list[Look]) -> None:
        ctx = self._ctx
        self._count((look.uuid, code) for look in looks for code in look.errors)
        seen = [one for look in looks for one in look.seen]
        if not seen:
            return
        found = await self._kept.owners.of(pids(seen), ctx.clock.now(), _PATIENCE, ctx.log)
        await self._announce()
        make = partial(use_of, processes=found, good_for_ns=GOOD_FOR * self._interval_ns)
        known = {device.uuid for device in self._inventory.devices}
        uses = tuple(make(one) for one in seen if one.device in known)
        if uses:
            await ctx.emit(ProcessesSampled(uses))
