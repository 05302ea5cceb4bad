"""The nvml source: the component that the pipeline runs."""

import asyncio
from pathlib import Path

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.component.restart_state import kept
from pipeline.model import NS, Reading, SamplesTaken, TopologyRead
from sources.nvml.codes import DriverGoneError
from sources.nvml.event_counts import TIMELESS
from sources.nvml.inventory import COUNT, INIT
from sources.nvml.options import Options
from sources.nvml.reading_sampler import ReadingSampler
from sources.nvml.restart_state import NvmlState
from sources.nvml.topology_readings import SYSFS
from sources.nvml.worker_pool import SHUTDOWN
from sources.nvml.xid_watch import SLICE

_SHUTDOWN_WITHIN = 0.3  # seconds; all of a stop stays below one second

UNTIL_CHANGED = 1 << 62
"""How long the readings of an outage stay valid, in nanoseconds: longer than any outage.

These are `gpu_up` 0 and the XID errors before the outage. Nothing renews them while the source is
down, and an alert on them would end if they expired. Any later reading replaces them."""


class NvmlSource:
    """Samples the GPUs of this machine. State that outlives it is in `ctx.restart_state`.

    Args:
        options: the source's options.
        sysfs_root: where sysfs is mounted.
    """

    def __init__(self, options: Options, sysfs_root: Path = SYSFS) -> None:
        self._options = options
        self._sysfs_root = sysfs_root

    async def run(self, ctx: SourceContext) -> None:
        """Open NVML, sample and emit until cancelled.

        Raises:
            TransientError: there is no library or driver, it went away, or it hangs. Before that,
                all known GPUs are reported as down.
            PermanentError: the option `devices` names devices that never existed on this node.
        """
        state = kept(ctx.restart_state, NvmlState)
        try:
            await self._sample(ctx, state)
        except TransientError as error:
            if isinstance(error, DriverGoneError):
                error.retry_after = state.next_retry_delay()
            await self._emit_outage(ctx, state)
            raise

    async def _sample(self, ctx: SourceContext, state: NvmlState) -> None:
        for target in state.workers.stuck & {INIT, COUNT, SHUTDOWN}:
            raise TransientError(
                f"{target} still hangs: the driver is stuck, see the kernel log (dmesg); "
                "reset the GPUs or restart the node"
            )
        state.xids.configure(self._options.xid_codes, round(self._options.xid_window * NS))
        state.workers.start(ctx.clock, self._options.deadline)
        try:
            await ReadingSampler(ctx, self._options, state, self._sysfs_root).run()
        except DriverGoneError:
            state.nvml.invalidate()
            raise
        finally:
            await self._close(state)

    async def _emit_outage(self, ctx: SourceContext, state: NvmlState) -> None:
        """Report once that all GPUs are down and must not be allocated.

        It is reported only once, since each further event would show the source as up. The last XID
        errors stay valid as long as the outage: they may show its cause.
        """
        shown = [uuid for uuid in state.gpus if uuid not in state.hidden]
        if state.outage_reported or not shown or "gpu_up" not in ctx.plan:
            return
        state.outage_reported = True
        at = ctx.clock.now()
        readings = [Reading(uuid, "gpu_up", (), 0, None, at, UNTIL_CHANGED) for uuid in shown]
        xid_fields = frozenset(field for field in TIMELESS if field in ctx.plan)
        readings += state.xids.readings(
            state.xids.with_errors(shown), xid_fields, at, UNTIL_CHANGED
        )
        await ctx.emit(SamplesTaken(tuple(readings)))
        # A scheduler must not allocate these GPUs.
        await ctx.emit(TopologyRead((), ()))

    async def _close(self, state: NvmlState) -> None:
        """Stop the threads and shut NVML down; abandon threads that do not end in time.

        If the thread that waits for XID errors does not end, NVML is not shut down: this would
        crash podgpu.
        """
        watch = state.xid_watch
        if watch is not None and watch.is_alive():
            watch.stop()
            try:
                async with asyncio.timeout(SLICE + 0.1):
                    await watch.ended.wait()
            except TimeoutError:
                # Shutting NVML down while a thread waits in it would crash the process.
                await state.workers.close(None, 0)
                return
        await state.workers.close(state.nvml.close, _SHUTDOWN_WITHIN)
