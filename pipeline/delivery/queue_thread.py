"""Runs a queue in its own thread, so that a slow or hung disk does not block the event loop."""

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Final, TypeAlias, TypeVar

from pipeline.base.clock import Clock
from pipeline.base.errors import TransientError
from pipeline.delivery.async_wait import wait_first
from pipeline.delivery.contract import QueueState, Record
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import Instant

T = TypeVar("T")

_FIRST_WAIT: Final = 1.0
"""Seconds to wait at first until a queue is open: sinks are entered one after the other."""

_NEXT_WAIT: Final = 3.0
"""Seconds of each further wait. A sink that must stop has to wait until this wait ends."""

OpenQueue: TypeAlias = Callable[[QueueOptions, str, Callable[[], Instant]], MemoryQueue]
"""Opens a queue for records of a kind. Arguments: options, kind, and a function that returns the
present time and may be called in any thread. Opening may block on a disk.

Raises `PermanentError` if another process uses the folder, if it contains records of another kind,
or if it can't contain a queue; `TransientError` while this same process uses it. A disk that can't
be written raises nothing: records are then kept in memory.
"""


class ThreadedQueue:
    """A queue that is opened and used in a thread; its calls are awaited in the event loop.

    Opening may take any time: callers poll `wait_until_open`. If this object is garbage-collected
    before that succeeds, the queue is closed as soon as it is open, and the thread is released.

    Calls run one after the other, in the order in which they were requested. A requested call runs
    even if its caller is cancelled, so that settled records stay settled.

    Args:
        thread: an executor with one thread.
        open_queue: opens the queue; nothing else may use that queue.
        options: options of the queue.
        kind: kind of the records.
        clock: the clock.
        report: called with the state after each call.

    Attributes:
        unconfirmed_points: number of points in `append` calls that have not returned or were
            cancelled.
    """

    def __init__(
        self,
        thread: Executor,
        open_queue: OpenQueue,
        options: QueueOptions,
        kind: str,
        clock: Clock,
        *,
        report: Callable[[QueueState], None],
    ) -> None:
        self._thread = thread
        self._path = options.path
        self._clock = clock
        self._report = report
        self.unconfirmed_points = 0
        self._wait_seconds = _FIRST_WAIT

        def open_it() -> tuple[MemoryQueue, QueueState]:
            queue = open_queue(options, kind, clock.now)
            return queue, queue.state()

        self._opening = thread.submit(open_it)
        self._finalizer = weakref.finalize(self, _abandon, thread, self._opening)
        self._finalizer.atexit = False

    async def wait_until_open(self) -> None:
        """Wait a limited time until opening the queue has succeeded or failed.

        Raises:
            TransientError: opening takes longer.
        """
        waited = asyncio.wrap_future(self._opening)
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        seconds_left, self._wait_seconds = self._wait_seconds, _NEXT_WAIT
        if not await wait_first(self._clock, seconds_left, waited):
            raise TransientError(
                f"the folder {self._path} of the queue does not respond: check its disk; new data "
                "waits in the sink's inbox while there is room",
                retry_after=_FIRST_WAIT,
            )

    def begin(self) -> QueueState:
        """Return the first state of the open queue; from now on, the queue can be used.

        Raises:
            PermanentError: not possible with this configuration.
            TransientError: not possible now.
        """
        self._finalizer.detach()
        if self._opening.exception():
            self._thread.shutdown(wait=False)
        self._queue, state = self._opening.result()
        return state

    async def append(self, records: Sequence[Record]) -> None:
        """Append records."""
        points = sum(record.points for record in records)
        self.unconfirmed_points += points
        await self._call(lambda: self._queue.append(records))
        self.unconfirmed_points -= points

    async def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records. They are in flight until they are settled or released."""
        return await self._call(lambda: self._queue.take(most_bytes))

    async def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Remove the first `count` records that are in flight."""
        """Remove the first `count` records that are in flight; see `MemoryQueue.settle`."""
        await self._call(lambda: self._queue.settle(count, acked=acked, rejected=rejected))

    async def release(self) -> None:
        """Put back the records in flight."""
        await self._call(self._queue.release)

    async def maintain(self, now_ns: int) -> None:
        """Do periodic work."""
        await self._call(lambda: self._queue.maintain(now_ns))

    async def close(self, seconds: float, *, before: float) -> bool:
        """Close the queue after all requested calls, and release the thread.

        Args:
            seconds: seconds that closing may take.
            before: seconds that the requested calls may take.

        Returns:
            Whether the queue was closed in time. If not, it is closed when the disk responds.
        """
        requested = asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)
        closing = self._thread.submit(self._close)
        done = asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)
        self._thread.shutdown(wait=False)
        if await wait_first(self._clock, before, requested) and await wait_first(
            self._clock, seconds, done
        ):
            self._report(closing.result())
            self.unconfirmed_points = 0
            return True
        requested.cancel()
        done.cancel()
        return False

    def _close(self) -> QueueState:
        self._queue.close()
        return self._queue.state()

    async def _call(self, function: Callable[[], T]) -> T:
        def call() -> tuple[T, QueueState]:
            return function(), self._queue.state()

        future = asyncio.wrap_future(self._thread.submit(call))
        result, state = await asyncio.shield(future)
        self._report(state)
        return result


def _abandon(thread: Executor, opening: "Future[tuple[MemoryQueue, QueueState]]") -> None:
    """Close a queue that is not waited for as soon as it is open, and release the thread."""

    def close_late() -> None:
        opening.result()[0].close()

    thread.submit(close_late)
    thread.shutdown(wait=False)
