"""Makes a sink that loses nothing of one that sends."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from types import TracebackType
from typing import Final, Self

from pipeline.contracts import SinkContext, SinkInbox
from pipeline.delivery.contract import OpenQueue, PushSink
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.delivery.pacing import Limit, Pace, Waits
from pipeline.delivery.queue.opening import open_queue as open_queue_of_ours
from pipeline.delivery.reporting import Reporter
from pipeline.delivery.sending import Ending, Sender
from pipeline.delivery.tending import tend
from pipeline.delivery.threaded import ThreadedQueue
from pipeline.delivery.waiting import ended, first
from pipeline.errors import TransientError
from pipeline.threads import DaemonExecutor

_CLOSING: Final = 1.0
"""Seconds that a queue has to close."""


class Delivering:
    """A sink that puts what `push` makes of snapshots into a queue, and sends it from there.

    Args:
        push: makes and sends records.
        queue: where they wait.
        retry: how long to wait before they are sent again.
        ctx: what the runtime lends.
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
        most_bytes: int,
        flush: float = 2.0,
        open_queue: OpenQueue = open_queue_of_ours,
        executor: Callable[[str], Executor] = DaemonExecutor,
    ) -> None:
        self._push = push
        self._options = queue
        self._ctx = ctx
        self._flush = flush
        self._open_queue = open_queue
        self._executor = executor
        self._reporter = Reporter(ctx)
        self._waits = Waits(retry)
        self._limit = Limit(int(most_bytes))
        self._pace = Pace(int(queue.max_rate))
        self._queue: ThreadedQueue | None = None
        self._ready = False
        self._begin: TransientError | None = None

    async def __aenter__(self) -> Self:
        """Open the queue and acquire what sending needs; if that can't be had now, data waits.

        Raises:
            PermanentError: either can't be had with this configuration.
            TransientError: the queue can't be opened now.
        """
        self._queue = await ThreadedQueue.open(
            self._executor(f"podgpu-queue-{self._ctx.name}"),
            self._open_queue,
            self._options,
            self._ctx.clock,
            opened=self._reporter.opened,
            report=self._reporter.update,
        )
        self._begin = None
        try:
            await self._push.__aenter__()
            self._ready = True
        except TransientError as error:
            self._begin = error
        except BaseException:
            await self._close()
            raise
        return self

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
        if await queue.close(self._ctx.clock, _CLOSING):
            self._reporter.closed()
        else:
            self._reporter.lost(queue.unsure)
            self._ctx.log.warning(
                "gave up on the queue in %s: its disk does not answer", self._options.path
            )

    async def run(self, inbox: SinkInbox) -> None:
        """Queue and send until the inbox ends, then send what waits for a short while."""
        queue, ending = self._queue, Ending()
        if queue is None:
            raise RuntimeError("run() outside of the sink's context")
        sender = Sender(
            self._push,
            queue,
            self._ctx,
            self._reporter,
            waits=self._waits,
            limit=self._limit,
            pace=self._pace,
            ending=ending,
            behind=self._reporter.queued > 0,
            lasting=self._options.path is not None,
            not_ready=self._begin,
        )
        sending = asyncio.create_task(sender.run())
        tending = asyncio.create_task(
            tend(queue, self._options, self._ctx, self._reporter, ending.news)
        )
        filling = asyncio.create_task(self._fill(queue, inbox, ending))
        tasks = (filling, sending, tending)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            _raise(*tasks)
            ending.set()
            await first(self._ctx.clock, self._flush, sending, tending)
            _raise(*tasks)
        finally:
            await ended(*tasks)
            self._ready = sender.ready
            self._begin = None

    async def _fill(self, queue: ThreadedQueue, inbox: SinkInbox, ending: Ending) -> None:
        """Put what snapshots have to say into the queue.

        While its disk hangs, no further one is taken: they stay in the inbox, which is bounded.
        """
        async for snapshot in inbox:
            if records := tuple(self._push.encode(snapshot)):
                await queue.append(records)
                ending.news.set()


def _raise(*tasks: "asyncio.Task[None]") -> None:
    """Let a bug go its way: nobody is to wait for a task that has died of one."""
    for task in tasks:
        if task.done():
            task.result()
