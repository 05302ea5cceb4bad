"""Periodic maintenance of a queue, and detection of a disk that hangs."""

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
"""Seconds after which a call that does not return is reported."""


async def maintain_queue(
    queue: ThreadedQueue,
    options: QueueOptions,
    ctx: SinkContext,
    reporter: DeliveryMetrics,
    work_available: asyncio.Event,
) -> None:
    """Let the queue flush and retry its disk, each second or as often as `fsync` requires.

    Args:
        queue: the queue.
        options: how often it is flushed.
        ctx: logger, metrics and clock of the sink.
        reporter: updates the age of the oldest data while a call is running.
        work_available: set while records wait: a disk that could not be read may work again.
    """
    interval = min(_INTERVAL, max(float(options.fsync) or _INTERVAL, _MIN_INTERVAL))
    while True:
        await ctx.clock.sleep(interval)
        call = asyncio.create_task(queue.maintain(ctx.clock.now().mono_ns))
        try:
            seconds = 0
            while not await wait_first(ctx.clock, _INTERVAL, call):
                reporter.update_age()
                seconds += 1
                if seconds == _MAX_UNANSWERED:
                    reporter.on_disk_unresponsive()
                    message = (
                        f"the queue in {options.path} has not responded for {_MAX_UNANSWERED} s: "
                        "check its disk; new data waits in the sink's inbox while there is room"
                    )
                    ctx.log.warning("%s", message)
                    ctx.meter.set_problem(message, ctx.clock.now())
            call.result()
            if reporter.queued:
                work_available.set()
            if seconds >= _MAX_UNANSWERED:
                ctx.log.info("the queue in %s responds again", options.path)
        finally:
            call.cancel()
