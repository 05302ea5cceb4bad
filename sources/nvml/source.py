"""The nvml source."""

import asyncio

from pipeline.contracts import SourceContext
from pipeline.errors import TransientError
from sources.nvml.codes import DriverGoneError
from sources.nvml.crew import SHUTDOWN, Crew
from sources.nvml.inventory import COUNT, INIT
from sources.nvml.library import Library
from sources.nvml.memory import Memory
from sources.nvml.options import Options
from sources.nvml.sampler import Sampler
from sources.nvml.watch import SLICE, XidWatch

_SHUTDOWN_WITHIN = 0.3  # seconds; all of a stop stays below one second


class NvmlSource:
    """Samples this machine's GPUs; keeps its XID counters and its stuck threads over runs.

    Args:
        options: the source's options.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._nvml = Library()
        self._memory = Memory(options.xid_codes)
        self._crew = Crew(self._memory.describe)
        self._watch: XidWatch | None = None

    async def run(self, ctx: SourceContext) -> None:
        """Open NVML, sample and emit until cancelled.

        Raises:
            TransientError: there is no library or driver, it went away, or it hangs.
        """
        for place in self._crew.stuck & {INIT, COUNT, SHUTDOWN}:
            raise TransientError(
                f"{place} still hangs: the driver is stuck, see the kernel log (dmesg); "
                "a reset of the GPUs or a restart of the node mends it"
            )
        self._crew.start(ctx.clock, self._options.deadline)
        nvml, crew, memory = self._nvml, self._crew, self._memory
        sampler = Sampler(ctx, self._options, nvml, crew, memory, watch=self._watch)
        try:
            await sampler.run()
        except DriverGoneError:
            self._nvml.void()
            raise
        finally:
            self._watch = sampler.watch
            await self._close()

    async def _close(self) -> None:
        """Stop the threads. What doesn't come back at once is left behind."""
        watch = self._watch
        if watch is not None and watch.is_alive():
            watch.stop()
            try:
                async with asyncio.timeout(SLICE + 0.1):
                    await watch.ended.wait()
            except TimeoutError:
                # Shutting NVML down under a thread that waits in it would crash the process.
                await self._crew.close(None, 0)
                return
        await self._crew.close(self._nvml.close, _SHUTDOWN_WITHIN)
