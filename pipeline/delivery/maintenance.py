"""Looks after a queue from time to time, and notices when its disk hangs."""

import asyncio
from typing import Final

from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import wait_first
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue_thread import ThreadedQueue

_INTERVAL: Final = 1.0
_MIN_INTERVAL: Final = 0.05
_MAX_UNANSWERED: Final = 10
"""Seconds after which a call that doesn't end is told of."""


async def maintain_queue(
    queue: ThreadedQueue,
    options: QueueOptions,
    ctx: SinkContext,
    reporter: DeliveryMetrics,
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
    every = min(_INTERVAL, max(float(options.fsync) or _INTERVAL, _MIN_INTERVAL))
    while True:
        await ctx.clock.sleep(every)
        call = asyncio.create_task(queue.maintain(ctx.clock.now().mono_ns))
        try:
            seconds = 0
            while not await wait_first(ctx.clock, _INTERVAL, call):
                reporter.update_age()
                seconds += 1
                if seconds == _MAX_UNANSWERED:
                    reporter.on_disk_unresponsive()
                    told = (
                        f"the queue in {options.path} has not answered for {_MAX_UNANSWERED} s: "
                        "see to its disk; new data waits in the sink's inbox while there is room"
                    )
                    ctx.log.warning("%s", told)
                    ctx.meter.set_problem(told, ctx.clock.now())
            call.result()
            if reporter.queued:
                news.set()
            if seconds >= _MAX_UNANSWERED:
                ctx.log.info("the queue in %s answers again", options.path)
        finally:
            call.cancel()
