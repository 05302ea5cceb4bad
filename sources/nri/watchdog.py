"""Sees to it that a podgpu that is stuck lets go of the runtime.

It counts its own turns and reads no clock: while the whole process is stopped there are none, and
nobody is blamed when it goes on.
"""

import asyncio
import contextlib
import faulthandler
import os
import sys
import threading
from typing import Final

from sources.nri.connection import Connection

_TURN: Final = 0.25
"""Seconds."""

WORK_LATE: Final = 1.0
"""Seconds of one piece of the reading thread's work; then the connection is closed. The runtime
waits for two."""

LOOP_LATE: Final = 5.0
"""Seconds without a turn of the event loop; then the connection is closed. The reading thread goes
on without it, but what nobody takes is of no use."""

LOOP_STUCK: Final = 60.0
"""Seconds without a turn of the event loop; then the process ends."""

_EXIT_GRACE: Final = 2.0
"""Seconds for saying why; stderr may be what everything is stuck in."""


class Watchdog:
    """A thread that watches over a connection; a context manager, entered in the event loop.

    Args:
        link: what it watches over.
    """

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._answered = True

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="podgpu-nri-watch", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        missed = busy = 0
        at: int | None = None
        while not self._over.wait(_TURN):
            work = self._link.current_task
            busy = busy + 1 if work is not None and work == at else 0
            at = work
            if busy * _TURN >= WORK_LATE:
                self._link.close(f"one message took longer than {WORK_LATE:.0f} s")
            missed = 0 if self._answered else missed + 1
            if self._answered:
                self._answered = False
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._answer)
            if missed * _TURN >= LOOP_LATE:
                self._link.close(f"podgpu's event loop is late by more than {LOOP_LATE:.0f} s")
            if missed * _TURN >= LOOP_STUCK:
                _end(f"podgpu: the event loop has been stuck for {LOOP_STUCK:.0f} s; ending\n")

    def _answer(self) -> None:
        self._answered = True


def _end(text: str) -> None:
    """End the process as a bug does, with the stacks of all its threads."""

    def say() -> None:
        os.write(2, text.encode())
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)

    last_words = threading.Thread(target=say, daemon=True)
    last_words.start()
    last_words.join(_EXIT_GRACE)
    os._exit(1)
