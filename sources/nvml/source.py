"""The nvml source."""

import asyncio
from pathlib import Path

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, Reading, SamplesTaken, TopologyRead
from sources.nvml import pci_sysfs
from sources.nvml.codes import DriverGoneError
from sources.nvml.inventory import COUNT, INIT
from sources.nvml.options import Options
from sources.nvml.sampler import Sampler
from sources.nvml.state import NvmlState
from sources.nvml.worker_pool import SHUTDOWN
from sources.nvml.xid_counts import LASTING
from sources.nvml.xid_watch import SLICE

_SHUTDOWN_WITHIN = 0.3  # seconds; all of a stop stays below one second

UNTIL_CHANGED = 1 << 62
"""How long a `gpu_up` of 0 is good that stands for the whole source, and the XID errors before it,
in nanoseconds: longer than any outage. Nobody renews it while the source is down, and if it went
away, an alert on it would fall silent just when the driver is gone. Any other reading takes its
place."""


class NvmlSource:
    """Samples this machine's GPUs. What has to outlive it stands in `ctx.kept`.

    Args:
        options: the source's options.
        sysfs_root: where sysfs is mounted.
    """

    def __init__(self, options: Options, sysfs_root: Path = pci_sysfs.ROOT) -> None:
        self._options = options
        self._sysfs_root = sysfs_root

    async def run(self, ctx: SourceContext) -> None:
        """Open NVML, sample and emit until cancelled.

        Raises:
            TransientError: there is no library or driver, it went away, or it hangs. By then every
                known GPU has been told to be down.
            PermanentError: the option `devices` names some that were never seen to be there.
        """
        kept = NvmlState.of(ctx.restart_state)
        try:
            await self._sample(ctx, kept)
        except TransientError as error:
            if isinstance(error, DriverGoneError):
                error.retry_after = kept.next_retry_delay()
            await self._emit_outage(ctx, kept)
            raise

    async def _sample(self, ctx: SourceContext, state: NvmlState) -> None:
        for place in state.workers.stuck & {INIT, COUNT, SHUTDOWN}:
            raise TransientError(
                f"{place} still hangs: the driver is stuck, see the kernel log (dmesg); "
                "a reset of the GPUs or a restart of the node mends it"
            )
        state.history.xids.start_at_zero(self._options.xid_codes)
        state.history.xids.set_window(round(self._options.xid_window * NS))
        state.workers.start(ctx.clock, self._options.deadline)
        try:
            await Sampler(ctx, self._options, state, self._sysfs_root).run()
        except DriverGoneError:
            state.nvml.void()
            raise
        finally:
            await self._close(state)

    async def _emit_outage(self, ctx: SourceContext, state: NvmlState) -> None:
        """Say once that no GPU answers: each further word would show the source as up.

        The XID errors stand for as long: the last one may say why.
        """
        memory = state.history
        shown = [uuid for uuid in memory.gpus if uuid not in memory.hidden]
        if memory.outage_reported or not shown or "gpu_up" not in ctx.plan:
            return
        memory.outage_reported = True
        at = ctx.clock.now()
        readings = [Reading(uuid, "gpu_up", (), 0, None, at, UNTIL_CHANGED) for uuid in shown]
        asked = frozenset(field for field in LASTING if field in ctx.plan)
        readings += memory.xids.readings(memory.xids.with_errors(shown), asked, at, UNTIL_CHANGED)
        await ctx.emit(SamplesTaken(tuple(readings)))
        # Nor is there anything to give to a pod.
        await ctx.emit(TopologyRead((), ()))

    async def _close(self, state: NvmlState) -> None:
        """Stop the threads. What doesn't come back at once is left behind."""
        watch = state.xid_watch
        if watch is not None and watch.is_alive():
            watch.stop()
            try:
                async with asyncio.timeout(SLICE + 0.1):
                    await watch.ended.wait()
            except TimeoutError:
                # Shutting NVML down under a thread that waits in it would crash the process.
                await state.workers.close(None, 0)
                return
        await state.workers.close(state.nvml.close, _SHUTDOWN_WITHIN)
