"""A queue in a thread of its own, since a disk may be slow, sick or hung."""

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Final, TypeVar

from pipeline.base.clock import Clock
from pipeline.base.errors import TransientError
from pipeline.delivery.async_wait import wait_first
from pipeline.delivery.contract import OpenQueue, Queue, QueueState, Record
from pipeline.delivery.options import QueueOptions

T = TypeVar("T")

_OPENING: Final = 1.0
"""Seconds that a queue has to open at first: sinks are entered one after the other."""

_MORE: Final = 3.0
"""Seconds that it is waited for each further time; a sink that has to stop waits for that."""

ReportState = Callable[[QueueState], None]


class ThreadedQueue:
    """A queue whose calls wait in the event loop and not in it.

    Calls are made one after the other, in the order in which they were asked for. One that was
    asked for is made, though who asked is cancelled: what was settled stays settled.

    Args:
        thread: has one thread.
        queue: what it works on; nobody else does.
        report: called with the state after each call.

    Attributes:
        unconfirmed_points: points that were to be appended by calls which nobody waited for to the
            end.
    """

    def __init__(self, thread: Executor, queue: Queue, report: ReportState) -> None:
        self._thread = thread
        self._queue = queue
        self._report = report
        self.unconfirmed_points = 0

    async def append(self, records: Sequence[Record]) -> None:
        """Put records at the end."""
        points = sum(record.points for record in records)
        self.unconfirmed_points += points
        await self._call(lambda: self._queue.append(records))
        self.unconfirmed_points -= points

    async def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records, and keep them until they are settled or released."""
        return await self._call(lambda: self._queue.take(most_bytes))

    async def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Forget the first `count` of the records that were taken."""
        await self._call(lambda: self._queue.settle(count, acked=acked, rejected=rejected))

    async def release(self) -> None:
        """Put back what was taken and isn't settled."""
        await self._call(self._queue.release)

    async def maintain(self, now_ns: int) -> None:
        """Do what has to be done from time to time."""
        await self._call(lambda: self._queue.maintain(now_ns))

    async def close(self, clock: Clock, seconds: float, *, before: float) -> bool:
        """Close the queue after all calls that were asked for, and give the thread back.

        Args:
            clock: tells when.
            seconds: how long it may take to close it.
            before: how long those calls may take.

        Returns:
            Whether that has ended in time; else it ends when the disk answers.
        """
        asked = asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)
        closing = self._thread.submit(self._close)
        done = asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)
        self._thread.shutdown(wait=False)
        if await wait_first(clock, before, asked) and await wait_first(clock, seconds, done):
            self._report(closing.result())
            self.unconfirmed_points = 0
            return True
        asked.cancel()
        done.cancel()
        return False

    def _close(self) -> QueueState:
        self._queue.close()
        return self._queue.state()

    async def _call(self, function: Callable[[], T]) -> T:
        def call() -> tuple[T, QueueState]:
            return function(), self._queue.state()

        made = asyncio.wrap_future(self._thread.submit(call))
        result, state = await asyncio.shield(made)
        self._report(state)
        return result


class QueueOpening:
    """A queue that opens in a thread, however long that takes.

    Whoever wants it waits a little at a time. If it is wanted no more, that is if nobody has this
    object, then the queue is closed once it is open, and the thread is given back.

    Args:
        thread: has one thread.
        open_queue: opens the queue.
        options: where.
        kind: a word for what its records are.
        clock: tells when.
    """

    def __init__(
        self,
        thread: Executor,
        open_queue: OpenQueue,
        options: QueueOptions,
        kind: str,
        clock: Clock,
    ) -> None:
        def call() -> tuple[Queue, QueueState]:
            queue = open_queue(options, kind, clock.now)
            return queue, queue.state()

        self._thread = thread
        self._path = options.path
        self._clock = clock
        self._wait_seconds = _OPENING
        self._opening = thread.submit(call)
        self._finalizer = weakref.finalize(self, _give_up, thread, self._opening)
        self._finalizer.atexit = False

    async def wait(self) -> None:
        """Wait a little until it is open, or can't be opened.

        Raises:
            TransientError: it takes longer.
        """
        waited = asyncio.wrap_future(self._opening)
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        patience, self._wait_seconds = self._wait_seconds, _MORE
        if not await wait_first(self._clock, patience, waited):
            raise TransientError(
                f"the queue's folder {self._path} has not answered yet: see to its disk; new data "
                "waits in the sink's inbox while there is room",
                retry_after=_OPENING,
            )

    def result(self, report: ReportState) -> tuple[ThreadedQueue, QueueState]:
        """Return the queue and its first state, once it is open.

        Args:
            report: called with each further state.

        Raises:
            PermanentError: it can't be had with this configuration.
            TransientError: not now.
        """
        self._finalizer.detach()
        if self._opening.exception():
            self._thread.shutdown(wait=False)
        queue, state = self._opening.result()
        return ThreadedQueue(self._thread, queue, report), state


def _give_up(thread: Executor, opening: "Future[tuple[Queue, QueueState]]") -> None:
    thread.submit(_close_late, opening)
    thread.shutdown(wait=False)


def _close_late(opening: "Future[tuple[Queue, QueueState]]") -> None:
    """Close a queue that opened after nobody wanted it any more."""
    if opening.exception() is None:
        opening.result()[0].close()
