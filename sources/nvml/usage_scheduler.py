"""Schedules usage samples and emits them with the owners of the processes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, ProcessesSampled
from sources.nvml.gpu_usage_sampler import GpuSample, GpuUsageSampler
from sources.nvml.inventory import Inventory
from sources.nvml.open_gpu import OpenGpu
from sources.nvml.options import Options
from sources.nvml.process_owners import ProcessLookup
from sources.nvml.reader_parts import VALIDITY_INTERVALS
from sources.nvml.restart_state import NvmlState
from sources.nvml.sample_owners import pids, to_device_use
from sources.nvml.worker_pool import Job, Step

_LOOKUP_TIMEOUT: Final = 1.0
"""Seconds that looking up processes may take: more than it ever needs, unless it hangs."""


class UsageScheduler:
    """Samples all GPUs at each interval, and a GPU immediately when its holder changes.

    Args:
        ctx: the source's context.
        options: the source's options.
        state: the state from earlier runs.
        inventory: the GPUs.
        announce: emits the discovered devices; called before their usage is emitted.
        count: counts failed calls: a GPU's uuid, and NVML's code.
    """

    def __init__(
        self,
        ctx: SourceContext,
        options: Options,
        state: NvmlState,
        inventory: Inventory,
        announce: Callable[[], Awaitable[None]],
        *,
        count: Callable[[Iterable[tuple[str, int]]], None],
    ) -> None:
        self._ctx = ctx
        self._state = state
        self._inventory = inventory
        self._announce = announce
        self._count = count
        self._interval_ns = round(options.usage_interval * NS)
        self._samplers: dict[OpenGpu, GpuUsageSampler] = {}
        # Samples must be emitted in the order in which they are taken.
        self._order_lock = asyncio.Lock()
        self._running_job: Job[GpuSample] | None = None
        if state.process_lookup.root != options.proc:
            state.process_lookup = ProcessLookup(options.proc)

    async def run(self) -> None:
        """Take a sample at each interval, except while the previous sample has not ended.

        Raises:
            TransientError: NVML cannot be used now.
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
            self._state.process_lookup.thread.stop()

    async def sample_now(self, gpus: Iterable[OpenGpu]) -> None:
        """Sample some GPUs now, so that a short pod has a sample at its start and at its end.

        Raises:
            TransientError: NVML cannot be used now.
        """
        if self._running_job is not None:
            self._state.workers.prioritize(self._running_job)
        await self._sample(gpus, urgent=True)

    async def _sample(self, gpus: Iterable[OpenGpu], *, urgent: bool) -> None:
        async with self._order_lock:
            steps = (Step(one.gpu.uuid, one.sample) for one in self._samplers_of(gpus))
            job: Job[GpuSample] = Job(steps, urgent=urgent, idle=not urgent)
            self._running_job = job
            try:
                await self._state.workers.run(job, lambda: self._emit(job.take()))
            except TransientError:
                # Samples from before the error are valid.
                await self._emit(job.take())
                raise
            finally:
                self._running_job = None
            await self._emit(job.take())

    def _samplers_of(self, gpus: Iterable[OpenGpu]) -> list[GpuUsageSampler]:
        """Return the samplers of the GPUs; after a hang, a sampler starts from zero."""
        nvml, now = self._state.nvml, self._ctx.clock.now
        processes_hidden = bool(self._state.process_lookup.hidden_reason)
        samplers = {
            gpu: self._samplers.get(gpu) or GpuUsageSampler(nvml, gpu, now)
            for gpu in self._inventory.gpus.values()
        }
        self._samplers = samplers
        stuck = self._state.workers.stuck
        for gpu, sampler in samplers.items():
            sampler.was_down |= gpu.uuid in stuck
            sampler.processes_hidden = processes_hidden
        return [samplers[gpu] for gpu in gpus if gpu in samplers]

    async def _emit(self, samples: list[GpuSample]) -> None:
        ctx = self._ctx
        self._count((sample.uuid, code) for sample in samples for code in sample.errors)
        raw_uses = [one for sample in samples for one in sample.devices]
        if not raw_uses:
            return
        records = await self._state.process_lookup.lookup(
            pids(raw_uses), ctx.clock.now(), _LOOKUP_TIMEOUT, ctx.log
        )
        await self._announce()
        make = partial(
            to_device_use, processes=records, good_for_ns=VALIDITY_INTERVALS * self._interval_ns
        )
        current_uuids = {device.uuid for device in self._inventory.devices}
        uses = tuple(make(one) for one in raw_uses if one.use.device in current_uuids)
        if uses:
            await ctx.emit(ProcessesSampled(uses))
