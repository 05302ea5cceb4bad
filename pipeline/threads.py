"""Threads for calls that block, which the end of the process doesn't wait for."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """Runs calls on daemon threads that are made as needed.

    The interpreter joins the threads of a `ThreadPoolExecutor` (which aiofiles uses too) when it
    ends: a pipe that nobody reads or a file server that doesn't answer would keep podgpu from
    stopping. This one is a subclass only since event loops take no other.

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
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make a call in a thread, after all that was submitted before."""
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it belongs to who waits
                    future.set_exception(error)

        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._made < self._most:
            self._made += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Let the threads end after what was submitted; never waits."""
        for _ in range(self._made):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call
            self._idle.release()

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
