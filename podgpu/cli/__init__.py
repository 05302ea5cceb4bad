"""The command line of podgpu.

Importing this package imports almost nothing, so that `main` can handle SIGTERM early.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from types import FrameType

_DAEMONS = frozenset({"run", "demo", "record", "extender", "dcgm-exporter"})
"""Long-running commands. SIGTERM is the normal way to stop them, so it gives exit status 0."""

_ENDED = 128 + signal.SIGTERM
"""Exit status of every other command that SIGTERM ends, as a shell reports it."""


_UNWRITTEN = 120
"""Exit status of the interpreter if its output could not be written."""


def program() -> int:
    """Run the command of this process and return its exit status.

    If daemon threads are left, end the process without finalizing the interpreter. During
    finalization, Python ends a daemon thread by unwinding its stack when the thread returns from
    a library call. A library written in Rust (bcrypt) or C++ then aborts the process.
    """
    try:
        status = main()
    except Exception:  # noqa: BLE001 - a bug; print it as the interpreter does
        sys.excepthook(*sys.exc_info())
        status = 1
    if any(thread.daemon for thread in threading.enumerate()):
        import logging

        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            # None if the process was started without it.
            if stream is not None and not stream.closed:
                try:
                    stream.flush()
                except OSError:
                    status = status or _UNWRITTEN
        os._exit(status)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 1 for a bug, 2 for an error the user has to fix."""
    # Importing the rest takes a quarter of a second. Without a handler, a SIGTERM in that time
    # would kill podgpu, or be ignored by the kernel if podgpu is process 1 of a container.
    # Daemons install their own handler later. All other commands keep this one.
    command = next(iter(sys.argv[1:] if argv is None else argv), "")
    status = 0 if command in _DAEMONS else _ENDED
    signal.signal(signal.SIGTERM, partial(_leave, status))
    from podgpu.cli.commands import run_command

    return run_command(argv)


def _leave(status: int, _signum: int, _frame: FrameType | None) -> None:
    """Exit immediately. No daemon has started yet, so there is nothing to shut down."""
    os._exit(status)
