"""The command line. Importing this package imports next to nothing: see `main`."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from types import FrameType

_DAEMONS = frozenset({"run", "demo", "record", "extender", "dcgm-exporter"})
"""Commands whose end by SIGTERM is what was wanted of them."""

_ENDED = 128 + signal.SIGTERM
"""What a shell has for a program that the signal ended: what it was asked has no answer."""


_UNWRITTEN = 120
"""What the interpreter ends with if its output could not be written."""


def program() -> int:
    """Run the command of this process; the process ends with its exit status.

    A daemon thread that returns from a call into a library while the interpreter is finalized is
    ended by unwinding its stack. A library written in Rust (bcrypt) or C++ aborts the process then.
    So the interpreter isn't finalized while such threads are left.
    """
    try:
        status = main()
    except Exception:  # noqa: BLE001 - a bug, shown as the interpreter shows it
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
    """Run a command; return its exit status: 1 is a bug, 2 what only the user can mend."""
    # Loading the rest takes a quarter of a second. A SIGTERM in that time would kill podgpu by the
    # signal, or, as process 1 of a container, be thrown away by the kernel. What runs on has a
    # handler of its own later; all others keep this one.
    command = next(iter(sys.argv[1:] if argv is None else argv), "")
    status = 0 if command in _DAEMONS else _ENDED
    signal.signal(signal.SIGTERM, partial(_leave, status))
    from pipeline.cli.commands import run_command

    return run_command(argv)


def _leave(status: int, _signum: int, _frame: FrameType | None) -> None:
    """There is nothing to drain: a daemon has not been started yet."""
    os._exit(status)
