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
from sources.nvml.owner_thread import ProcessLookup
from sources.nvml.sample_owners import pids, to_device_use
from sources.nvml.state import NvmlState
from sources.nvml.usage_sample import GpuSample, GpuUsageSampler
from sources.nvml.worker_pool import Job, Step

GOOD_FOR: Final = 3  # intervals

_LOOKUP_TIMEOUT: Final = 1.0
"""Seconds that looking up processes may take: longer than ever, unless it hangs."""


class SampleJob(Job):
    """Look at some GPUs.

    Args:
        lookers: of the GPUs.
        urgent: at once, rather than between rounds.
    """

    def __init__(self, lookers: Iterable[GpuUsageSampler], *, urgent: bool) -> None:
        self._samples: list[GpuSample] = []
        super().__init__(
            (Step(one.gpu.uuid, one.sample, self._samples.append) for one in lookers),
            urgent=urgent,
            idle=not urgent,
        )

    def take(self) -> list[GpuSample]:
        """Return what was seen since this was last called.

        Safe to call while the job goes on: the thread only appends.
        """
        looks = self._samples[:]
        del self._samples[: len(looks)]
        return looks


class ProcessSampler:
    """Looks at all GPUs on a grid of its own, and at those that changed hands at once.

    Args:
        ctx: the source's context.
        options: the source's options.
        state: what there is from earlier runs.
        inventory: the GPUs.
        announce: tells of the devices that were found, before anything of them is told.
        count: counts what failed: a GPU's uuid, and NVML's code.
    """

    def __init__(
        self,
        ctx: SourceContext,
        options: Options,
        state: NvmlState,
        inventory: Inventory,
        *,
        announce: Callable[[], Awaitable[None]],
        count: Callable[[Iterable[tuple[str, int]]], None],
    ) -> None:
        self._ctx = ctx
        self._state = state
        self._inventory = inventory
        self._announce = announce
        self._count = count
        self._interval_ns = round(options.usage_interval * NS)
        self._samplers: dict[Gpu, GpuUsageSampler] = {}
        # What is seen later is to be told later.
        self._turn = asyncio.Lock()
        self._running_job: SampleJob | None = None
        place = (options.proc, options.proc != ROOT)
        if state.process_lookup.place != place:
            state.process_lookup = ProcessLookup(place[0], is_configured=place[1])

    async def run(self) -> None:
        """Look each time that the interval has passed. A look that is late is left out.

        Raises:
            TransientError: NVML can't be used now.
        """
        clock = self._ctx.clock
        due_ns = clock.now().mono_ns
        try:
            while True:
                await self._sample(self._inventory.gpus.values(), urgent=False)
                now_ns = clock.now().mono_ns
                due_ns += max(1, -(-(now_ns - due_ns) // self._interval_ns)) * self._interval_ns
                await clock.sleep((due_ns - now_ns) / NS)
        finally:
            self._state.process_lookup.stop_idle_thread()

    async def sample_now(self, gpus: Iterable[Gpu]) -> None:
        """Look at some GPUs now: a pod that is gone in a moment has both ends.

        Raises:
            TransientError: NVML can't be used now.
        """
        if self._running_job is not None:
            self._state.workers.prioritize(self._running_job)
        await self._sample(gpus, urgent=True)

    async def _sample(self, gpus: Iterable[Gpu], *, urgent: bool) -> None:
        async with self._turn:
            work = self._running_job = SampleJob(self._samplers_of(gpus), urgent=urgent)
            try:
                await self._state.workers.run(work, lambda: self._emit(work.take()))
            except TransientError:
                # What was seen before that is as good as ever.
                await self._emit(work.take())
                raise
            finally:
                self._running_job = None
            await self._emit(work.take())

    def _samplers_of(self, gpus: Iterable[Gpu]) -> list[GpuUsageSampler]:
        """Return what looks at the GPUs; those in which the driver hangs go on from nothing."""
        nvml, now = self._state.nvml, self._ctx.clock.now
        blind = bool(self._state.process_lookup.hidden_reason)
        lookers = {
            gpu: self._samplers.get(gpu) or GpuUsageSampler(nvml, gpu, now)
            for gpu in self._inventory.gpus.values()
        }
        self._samplers = lookers
        stuck = self._state.workers.stuck
        for gpu, looker in lookers.items():
            looker.was_down |= gpu.uuid in stuck
            looker.processes_hidden = blind
        return [lookers[gpu] for gpu in gpus if gpu in lookers]

    async def _emit(self, samples: list[GpuSample]) -> None:
        ctx = self._ctx
        self._count((look.uuid, code) for look in samples for code in look.errors)
        seen = [one for look in samples for one in look.devices]
        if not seen:
            return
        found = await self._state.process_lookup.lookup(
            pids(seen), ctx.clock.now(), _LOOKUP_TIMEOUT, ctx.log
        )
        await self._announce()
        make = partial(to_device_use, processes=found, good_for_ns=GOOD_FOR * self._interval_ns)
        known = {device.uuid for device in self._inventory.devices}
        uses = tuple(make(one) for one in seen if one.device in known)
        if uses:
            await ctx.emit(ProcessesSampled(uses))
