"""A watchdog that closes the connection to the runtime, or ends podgpu, if podgpu is blocked.

It counts its own iterations and does not read a clock. While the whole process is stopped, there
are no iterations, so no timeout expires when the process continues.
"""

import asyncio
import contextlib
import faulthandler
import os
import sys
import threading
from typing import Final

from sources.nri.connection import Connection

_CHECK_SECONDS: Final = 0.25
"""Seconds between two checks."""

WORK_LATE: Final = 1.0
"""Seconds that the reading thread may spend on data from one read before the connection is closed.
The runtime waits for two seconds."""

LOOP_LATE: Final = 5.0
"""Seconds without an iteration of the event loop before the connection is closed. The reading
thread works without the event loop, but the event loop emits the containers."""

LOOP_STUCK: Final = 60.0
"""Seconds without an iteration of the event loop before the process exits."""

_EXIT_SECONDS: Final = 2.0
"""Seconds to wait until the reason is written; writing to stderr may block, too."""


class StallWatchdog:
    """A thread that monitors a connection; enter this context manager in the event loop.

    Args:
        connection: the connection to monitor.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._loop_responded = True

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="podgpu-nri-watch", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        missed = busy = 0
        last_work: int | None = None
        while not self._stopped.wait(_CHECK_SECONDS):
            work = self._connection.current_task
            busy = busy + 1 if work is not None and work == last_work else 0
            last_work = work
            if busy * _CHECK_SECONDS >= WORK_LATE:
                self._connection.close(f"podgpu needed more than {WORK_LATE:.0f} s for a message")
            missed = 0 if self._loop_responded else missed + 1
            if self._loop_responded:
                self._loop_responded = False
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._on_loop_response)
            if missed * _CHECK_SECONDS >= LOOP_LATE:
                self._connection.close(f"podgpu was blocked for {LOOP_LATE:.0f} s")
            if missed * _CHECK_SECONDS >= LOOP_STUCK:
                _exit_process(
                    f"podgpu: it was blocked for {LOOP_STUCK:.0f} s (its event loop did not run); "
                    "podgpu exits\n"
                )

    def _on_loop_response(self) -> None:
        self._loop_responded = True


def _exit_process(text: str) -> None:
    """Write a text and the stacks of all threads to stderr, then exit with status 1."""

    def write_stacks() -> None:
        os.write(2, text.encode())
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)

    writer = threading.Thread(target=write_stacks, daemon=True)
    writer.start()
    writer.join(_EXIT_SECONDS)
    os._exit(1)
