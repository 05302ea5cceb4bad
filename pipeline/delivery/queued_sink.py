"""Makes a sink that loses nothing of one that sends."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.warnings import warn
from pipeline.delivery.async_wait import cancel_and_wait, wait_first
from pipeline.delivery.contract import OpenQueue, PushSink
from pipeline.delivery.maintenance import maintain_queue
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.delivery.production_rate import ProductionRate
from pipeline.delivery.queue.factory import open_queue as open_queue_of_ours
from pipeline.delivery.queue_thread import QueueOpening, ThreadedQueue
from pipeline.delivery.rate_limits import MessageSizeLimit, RateLimiter, RetryBackoff
from pipeline.delivery.sender import Sender, StopSignal
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.model import Instant

_CLOSE_SECONDS: Final = 3.0
"""Seconds that a queue has to close. Until then nobody else gets its folder."""

_MIN_FLUSH_SECONDS: Final = 1.0
"""Seconds that calls of the queue before have at least, after which it isn't closed in time."""


class QueuedSink:
    """A sink that puts what `push` makes of snapshots into a queue, and sends it from there.

    Args:
        push: makes and sends records.
        queue: where they wait.
        retry: how long to wait before they are sent again.
        ctx: what the runtime lends.
        kind: a word for what the records are: they are never mixed with those of another.
        most_bytes: the largest message; a record that is larger is refused here.
        flush: seconds that a sink which has to stop goes on sending.
        open_queue: opens the queue.
        executor: makes the queue's thread, by a name.
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
        open_queue: OpenQueue = open_queue_of_ours,
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
        self._backoff = RetryBackoff(retry)
        self._size_limit = MessageSizeLimit(int(most_bytes))
        self._rate_limiter = RateLimiter(int(queue.max_rate))
        self._production = ProductionRate(queue.max_rate, ctx)
        self._opening: QueueOpening | None = None
        self._queue: ThreadedQueue | None = None
        self._ended: Instant | None = None
        self._ready = False
        self._begin: TransientError | None = None

    async def __aenter__(self) -> Self:
        """Open the queue and acquire what sending needs; if that can't be had now, data waits.

        Raises:
            PermanentError: either can't be had with this configuration.
            TransientError: the queue can't be opened now. If it takes long, it goes on being opened
                until this is called again, or this object is gone.
        """
        self._queue = await self._opened()
        self._begin = self._ended = None
        try:
            await self._push.__aenter__()
            self._ready = True
        except TransientError as error:
            self._begin = error
        except BaseException:
            await self._close()
            raise
        return self

    async def _opened(self) -> ThreadedQueue:
        opening = self._opening or QueueOpening(
            self._executor(f"podgpu-queue-{self._ctx.name}"),
            self._open_queue,
            self._options,
            self._kind,
            self._ctx.clock,
        )
        self._opening = opening
        await opening.wait()
        self._opening = None
        queue, state = opening.result(self._reporter.update)
        self._reporter.on_opened(state, self._options.path)
        return queue

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Give everything back.

        What waits on the disk stays there; what waits in memory is dropped and counted.
        """
        try:
            if self._ready:
                self._ready = False
                await self._push.__aexit__(exc_type, exc, traceback)
        finally:
            await self._close()

    async def _close(self) -> None:
        queue, self._queue = self._queue, None
        if queue is None:
            return
        clock, gone = self._ctx.clock, 0.0
        if self._ended is not None:
            gone = self._ended.seconds_until(clock.now())
        if await queue.close(
            clock, _CLOSE_SECONDS, before=max(_CLOSE_SECONDS - gone, _MIN_FLUSH_SECONDS)
        ):
            self._reporter.on_closed()
        else:
            self._reporter.count_lost(queue.unconfirmed_points)
            warn(
                self._ctx,
                "gave up on the queue in %s: its disk does not answer",
                self._options.path,
            )

    async def run(self, inbox: SinkInbox) -> None:
        """Queue and send until the inbox ends, then do so with what waits for a short while."""
        queue, ending = self._queue, StopSignal()
        if queue is None:
            raise RuntimeError("run() outside of the sink's context")
        sender = Sender(
            self._push,
            queue,
            self._ctx,
            self._reporter,
            backoff=self._backoff,
            size_limit=self._size_limit,
            rate_limiter=self._rate_limiter,
            stop_signal=ending,
            has_backlog=self._reporter.queued > 0,
            persistent=self._options.path is not None,
            not_ready=self._begin,
        )
        sending = asyncio.create_task(sender.run())
        tending = asyncio.create_task(
            maintain_queue(queue, self._options, self._ctx, self._reporter, ending.work_available)
        )
        filling = asyncio.create_task(self._fill(queue, inbox, ending))
        tasks, clock = (filling, sending, tending), self._ctx.clock
        closed = asyncio.create_task(inbox.wait_closed())
        try:
            await asyncio.wait((*tasks, closed), return_when=asyncio.FIRST_COMPLETED)
            _raise(*tasks)
            self._ended = clock.now()
            # A disk that hasn't taken by then what is in the inbox doesn't get the rest either.
            await wait_first(clock, self._flush, *tasks)
            _raise(*tasks)
            ending.set()
            left = self._flush - self._ended.seconds_until(clock.now())
            await wait_first(clock, max(left, 0.0), sending, tending)
            _raise(*tasks)
        finally:
            await cancel_and_wait(*tasks, closed)
            self._ready = sender.ready
            self._begin = None

    async def _fill(self, queue: ThreadedQueue, inbox: SinkInbox, ending: StopSignal) -> None:
        """Put what snapshots have to say into the queue.

        While its disk hangs, no further one is taken: they stay in the inbox, which is bounded.
        """
        async for snapshot in inbox:
            if records := tuple(self._push.encode(snapshot)):
                await queue.append(records)
                ending.work_available.set()
            self._production.record(sum(len(record.data) for record in records))


def _raise(*tasks: "asyncio.Task[None]") -> None:
    """Let a bug go its way: nobody is to wait for a task that has died of one."""
    for task in tasks:
        if task.done():
            task.result()
