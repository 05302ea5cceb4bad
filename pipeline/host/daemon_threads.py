"""Threads for calls that block, which the end of the process doesn't wait for."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """Runs calls on daemon threads that are made as needed.

    The interpreter joins the threads of a `ThreadPoolExecutor` (which aiofiles uses too) when it
    ends: a pipe that nobody reads or a file server that doesn't answer would keep podgpu from
    stopping. This one is a subclass only since event loops take no other.

    What a call was given is let go as soon as the call has been made, or won't be.

    Args:
        name: of the threads.
        threads: how many there are at most. With one, calls are made in the order of `submit`.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._name = name
        self._most = threads
        self._made = 0
        self._idle = threading.Semaphore(0)
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make a call in a thread, after all that was submitted before."""
        call = _Call(partial(fn, *args, **kwargs))
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._made < self._most:
            self._made += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return call

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Let the threads end after what was submitted; never waits."""
        for _ in range(self._made):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _make(call)
            del call
            self._idle.release()

    def __exit__(self, *_: Any) -> None:
        self.shutdown()


class _Call(Future[T]):
    """What comes of a call, and the call until it is made."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self.work: Callable[[], T] | None = work

    def cancel(self) -> bool:
        """As of every future; a call that waits for a thread keeps nothing from here on."""
        cancelled = super().cancel()
        if cancelled:
            self.work = None
        return cancelled


def _make(call: _Call[Any]) -> None:
    work = call.work
    if not call.set_running_or_notify_cancel() or work is None:
        return
    call.work = None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it belongs to who waits
        call.set_exception(error)
        # The error has this frame in its traceback: it would keep itself, and what was given.
        del work, call
    else:
        del work
        call.set_result(result)
