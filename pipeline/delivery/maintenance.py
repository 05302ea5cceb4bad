"""Looks after a queue from time to time, and notices when its disk hangs."""

import asyncio
from typing import Final

from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import first
from pipeline.delivery.metrics import Reporter
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue_thread import ThreadedQueue

_EVERY: Final = 1.0
_OFTEN: Final = 0.05
_PATIENCE: Final = 10
"""Seconds after which a call that doesn't end is told of."""


async def tend(
    queue: ThreadedQueue,
    options: QueueOptions,
    ctx: SinkContext,
    reporter: Reporter,
    news: asyncio.Event,
) -> None:
    """Let the queue flush and try its disk, once a second or as often as it is to be flushed.

    Args:
        queue: what to look after.
        options: how often it is flushed.
        ctx: whose log, and whose clock.
        reporter: tells in between how old the oldest data is.
        news: set while something waits: a disk that could not be read may have recovered.
    """
    every = min(_EVERY, max(float(options.fsync) or _EVERY, _OFTEN))
    while True:
        await ctx.clock.sleep(every)
        call = asyncio.create_task(queue.tend(ctx.clock.now().mono_ns))
        try:
            seconds = 0
            while not await first(ctx.clock, _EVERY, call):
                reporter.age()
                seconds += 1
                if seconds == _PATIENCE:
                    reporter.stuck()
                    told = (
                        f"the queue in {options.path} has not answered for {_PATIENCE} s: see to "
                        "its disk; new data waits in the sink's inbox while there is room"
                    )
                    ctx.log.warning("%s", told)
                    ctx.meter.trouble(told, ctx.clock.now())
            call.result()
            if reporter.queued:
                news.set()
            if seconds >= _PATIENCE:
                ctx.log.info("the queue in %s answers again", options.path)
        finally:
            call.cancel()
