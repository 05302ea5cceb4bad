"""Threads for blocking calls. The process does not wait for them when it exits."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """Runs calls in daemon threads, which are started as needed.

    When the interpreter exits, it joins the threads of a `ThreadPoolExecutor` (also used by
    aiofiles). A call that hangs, on a pipe without a reader or on a file server that does not
    respond, would keep podgpu from stopping. This class is a subclass only because event loops
    accept no other executor.

    References to a call's arguments are released as soon as the call has ended or is cancelled.

    Args:
        name: name of the threads.
        threads: maximum number of threads. With one, calls run in the order of `submit`.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._name = name
        self._max_threads = threads
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in a thread. It starts after the calls that were submitted before."""
        call = _Call(partial(fn, *args, **kwargs))
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._started < self._max_threads:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return call

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the threads after the calls that were submitted. Does not wait for that."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _run(call)
            del call
            self._idle.release()


class _Call(Future[T]):
    """The future result of a call, and the call itself until it runs."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self.work: Callable[[], T] | None = work

    def cancel(self) -> bool:
        """Cancel the call, and release its arguments if it did not start."""
        cancelled = super().cancel()
        if cancelled:
            self.work = None
        return cancelled


class SingleCall:
    """Runs blocking calls in a daemon thread, one at a time.

    A call may outlive the component that started it.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor: DaemonExecutor | None = None
        self._running: asyncio.Future[Any] | None = None

    @property
    def running(self) -> asyncio.Future[Any] | None:
        """The call that has not returned yet; None if there is none."""
        return None if self._running is None or self._running.done() else self._running

    def start(self, work: Callable[[], T]) -> asyncio.Future[T] | None:
        """Start a call; return None if an earlier one has not returned."""
        if self.running is not None:
            return None
        self._executor = self._executor or DaemonExecutor(self._name)
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        # The error of a call that is not awaited any more is of no interest.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._running = future
        return future

    async def result(self, work: Callable[[], T], within: float) -> T:
        """Make a call and return its result.

        Args:
            work: the call.
            within: maximum duration in seconds. A call that takes longer continues in the thread.

        Raises:
            TimeoutError: the call takes longer, or an earlier call has not returned.
            Exception: what the call raised.
        """
        future = self.start(work)
        if future is not None:
            await asyncio.wait([future], timeout=within)
        if future is None or not future.done():
            raise TimeoutError
        return future.result()

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """End the thread after the call in progress. Until that has ended, `start` returns None.

        Args:
            last: a call that the thread makes before it ends, if there is a thread.
        """
        if self._executor is not None:
            if last is not None:
                loop = asyncio.get_running_loop()
                self._running = loop.run_in_executor(self._executor, last)
            self._executor.shutdown()
            self._executor = None


def _run(call: _Call[Any]) -> None:
    work = call.work
    if not call.set_running_or_notify_cancel() or work is None:
        return
    call.work = None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        call.set_exception(error)
        # The error's traceback refers to this frame, which would keep the error and the arguments.
        del work, call
    else:
        del work
        call.set_result(result)
