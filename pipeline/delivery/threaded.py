"""A queue in a thread of its own, since a disk may be slow, sick or hung."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Final, Self, TypeVar

from pipeline.clock import Clock
from pipeline.delivery.contract import OpenQueue, Queue, QueueState, Record
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.waiting import first
from pipeline.errors import TransientError

T = TypeVar("T")

_OPENING: Final = 10.0
"""Seconds that a queue has to open."""

Report = Callable[[QueueState], None]


class ThreadedQueue:
    """A queue whose calls wait in the event loop and not in it.

    Calls are made one after the other, in the order in which they were asked for. One that was
    asked for is made, though who asked is cancelled: what was settled stays settled.

    Args:
        thread: has one thread.
        queue: what it works on; nobody else does.
        report: called with the state after each call.

    Attributes:
        unsure: points that were to be appended by calls which nobody waited for to the end.
    """

    def __init__(self, thread: Executor, queue: Queue, report: Report) -> None:
        self._thread = thread
        self._queue = queue
        self._report = report
        self.unsure = 0

    @classmethod
    async def open(
        cls,
        thread: Executor,
        open_queue: OpenQueue,
        options: QueueOptions,
        clock: Clock,
        *,
        opened: Report,
        report: Report,
    ) -> Self:
        """Open a queue in the thread, which is given back if that fails.

        Args:
            thread: has one thread.
            open_queue: opens it.
            options: where.
            clock: tells when.
            opened: called with the first state.
            report: called with each further one.

        Raises:
            PermanentError: it can't be had with this configuration.
            TransientError: not now, or the disk doesn't answer.
        """

        def call() -> tuple[Queue, QueueState]:
            queue = open_queue(options, clock.now)
            return queue, queue.state()

        opening = thread.submit(call)
        waited = asyncio.wrap_future(opening)
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        done = False
        try:
            done = await first(clock, _OPENING, waited)
        finally:
            if not done:
                thread.submit(_close_late, opening)
            if not done or opening.exception():
                thread.shutdown(wait=False)
        if not done:
            raise TransientError(
                f"the queue's folder {options.path} does not answer: see to its disk"
            )
        queue, state = opening.result()
        opened(state)
        return cls(thread, queue, report)

    async def append(self, records: Sequence[Record]) -> None:
        """Put records at the end."""
        points = sum(record.points for record in records)
        self.unsure += points
        await self._call(lambda: self._queue.append(records))
        self.unsure -= points

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

    async def tend(self, now_ns: int) -> None:
        """Do what has to be done from time to time."""
        await self._call(lambda: self._queue.tend(now_ns))

    async def close(self, clock: Clock, seconds: float) -> bool:
        """Close the queue after all calls that were asked for, and give the thread back.

        Returns:
            Whether that has ended within so many seconds; else it ends when the disk answers.
        """
        closing = self._thread.submit(self._close)
        done = asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)
        self._thread.shutdown(wait=False)
        if await first(clock, seconds, done):
            self._report(closing.result())
            self.unsure = 0
            return True
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


def _close_late(opening: "Future[tuple[Queue, QueueState]]") -> None:
    """Close a queue that opened after nobody wanted it any more."""
    if opening.exception() is None:
        opening.result()[0].close()
