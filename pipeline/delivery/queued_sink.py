"""A sink that queues what it sends, and retries until the receiver has accepted or refused it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Self

from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.warnings import warn
from pipeline.delivery.async_wait import cancel_and_wait, wait_first
from pipeline.delivery.contract import PushSink
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.delivery.queue.factory import open_queue as open_default_queue
from pipeline.delivery.queue_thread import OpenQueue, ThreadedQueue
from pipeline.delivery.rate_limits import ProductionRate
from pipeline.delivery.sender import Sender
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.model import Instant

_CLOSE_SECONDS: Final = 3.0
"""Seconds that a queue has to close. Its folder stays locked until then."""

_MIN_FLUSH_SECONDS: Final = 1.0
"""Minimum seconds that requested calls of the queue get before podgpu gives up closing it."""

_MAINTENANCE_INTERVAL: Final = 1.0
_MIN_MAINTENANCE_INTERVAL: Final = 0.05
_MAX_UNANSWERED: Final = 10
"""Seconds after which a call of the queue that does not return is reported."""


class QueuedSink:
    """Wraps a `PushSink`: puts its records into a queue, and sends them from there.

    Args:
        push: encodes and sends records.
        queue: options of the queue.
        retry: how long to wait before records are sent again.
        ctx: context of the sink.
        kind: kind of the records. Records of two kinds are never in one queue.
        most_bytes: maximum size of a message in bytes; a larger record is rejected.
        flush: seconds for which the sink continues to send when it has to stop.
        open_queue: opens the queue.
        executor: creates the executor with the queue's thread, for a given name.
    """

    def __init__(
        self,
        push: PushSink,
        queue: QueueOptions,
        retry: RetryOptions,
        ctx: SinkContext,
        *,
        kind: str,
        most_bytes: int,
        flush: float = 2.0,
        open_queue: OpenQueue = open_default_queue,
        executor: Callable[[str], Executor] = DaemonExecutor,
    ) -> None:
        self._push = push
        self._options = queue
        self._ctx = ctx
        self._kind = kind
        self._flush = flush
        self._open_queue = open_queue
        self._executor = executor
        self._reporter = DeliveryMetrics(ctx)
        self._sender = Sender(
            push, ctx, self._reporter, options=queue, retry=retry, most_bytes=int(most_bytes)
        )
        self._production = ProductionRate(queue.max_rate, ctx)
        self._opening: ThreadedQueue | None = None
        self._queue: ThreadedQueue | None = None
        self._ended: Instant | None = None

    async def __aenter__(self) -> Self:
        """Open the queue, and acquire what sending needs. If that fails for now, data waits.

        Raises:
            PermanentError: not possible with this configuration.
            TransientError: the queue can't be opened now. If opening takes long, it continues until
                this method is called again, or this object is garbage-collected.
        """
        self._queue = await self._opened()
        self._ended = None
        try:
            await self._sender.enter()
        except BaseException:
            await self._close()
            raise
        return self

    async def _opened(self) -> ThreadedQueue:
        queue = self._opening or ThreadedQueue(
            self._executor(f"podgpu-queue-{self._ctx.name}"),
            self._open_queue,
            self._options,
            self._kind,
            self._ctx.clock,
            report=self._reporter.update,
        )
        self._opening = queue
        await queue.wait_until_open()
        self._opening = None
        self._reporter.on_opened(queue.begin(), self._options.path)
        return queue

    async def __aexit__(self, *_: object) -> None:
        """Release everything.

        Records on disk stay there; records in memory are dropped and counted.
        """
        try:
            await self._sender.leave()
        finally:
            await self._close()

    async def _close(self) -> None:
        queue, self._queue = self._queue, None
        if queue is None:
            return
        now = self._ctx.clock.now()
        seconds_left = _CLOSE_SECONDS - (self._ended or now).seconds_until(now)
        if await queue.close(_CLOSE_SECONDS, before=max(seconds_left, _MIN_FLUSH_SECONDS)):
            self._reporter.on_closed()
        else:
            self._reporter.count_lost(queue.unconfirmed_points)
            warn(
                self._ctx,
                "gave up closing the queue in %s: its disk does not respond; check the disk",
                self._options.path,
            )

    async def run(self, inbox: SinkInbox) -> None:
        """Queue and send until the inbox ends; then send the rest, for at most `flush` seconds."""
        queue, sender = self._queue, self._sender
        if queue is None:
            raise RuntimeError("run() was called outside of the sink's context")
        sending = asyncio.create_task(sender.run(queue))
        maintaining = asyncio.create_task(self._maintain(queue))
        filling = asyncio.create_task(self._fill(queue, inbox))
        tasks, clock = (filling, sending, maintaining), self._ctx.clock
        closed = asyncio.create_task(inbox.wait_closed())
        try:
            await asyncio.wait((*tasks, closed), return_when=asyncio.FIRST_COMPLETED)
            _raise_failure(*tasks)
            self._ended = clock.now()
            # A disk that has not accepted the inbox by then does not get the rest either.
            await wait_first(clock, self._flush, *tasks)
            _raise_failure(*tasks)
            sender.stopping.set()
            sender.work_available.set()
            seconds_left = self._flush - self._ended.seconds_until(clock.now())
            await wait_first(clock, max(seconds_left, 0.0), sending, maintaining)
            _raise_failure(*tasks)
        finally:
            await cancel_and_wait(*tasks, closed)

    async def _fill(self, queue: ThreadedQueue, inbox: SinkInbox) -> None:
        """Put the records of snapshots into the queue.

        While the disk hangs, snapshots wait in the inbox, which is bounded.
        """
        async for snapshot in inbox:
            if records := tuple(self._push.encode(snapshot)):
                await queue.append(records)
                self._sender.work_available.set()
            self._production.record(sum(len(record.data) for record in records))

    async def _maintain(self, queue: ThreadedQueue) -> None:
        """Let the queue flush and retry its disk, each second, or more often if `fsync` is less."""
        ctx, path = self._ctx, self._options.path
        fsync = float(self._options.fsync) or _MAINTENANCE_INTERVAL
        while True:
            await ctx.clock.sleep(min(_MAINTENANCE_INTERVAL, max(fsync, _MIN_MAINTENANCE_INTERVAL)))
            call = asyncio.create_task(queue.maintain(ctx.clock.now().mono_ns))
            try:
                seconds = 0
                while not await wait_first(ctx.clock, _MAINTENANCE_INTERVAL, call):
                    self._reporter.update_age()
                    seconds += 1
                    if seconds == _MAX_UNANSWERED:
                        ctx.meter.set("podgpu_sink_queue_writable", 0)
                        message = (
                            f"the queue in {path} has not responded for {_MAX_UNANSWERED} s: check "
                            "its disk; new data waits in the sink's inbox while there is room"
                        )
                        ctx.log.warning("%s", message)
                        ctx.meter.set_problem(message, ctx.clock.now())
                call.result()
                if self._reporter.queued:
                    # A disk that could not be read may work again.
                    self._sender.work_available.set()
                if seconds >= _MAX_UNANSWERED:
                    ctx.log.info("the queue in %s responds again", path)
            finally:
                call.cancel()


def _raise_failure(*tasks: "asyncio.Task[None]") -> None:
    """Raise the exception of a task that failed: it is a bug, and nothing should wait for it."""
    for task in tasks:
        if task.done():
            task.result()
