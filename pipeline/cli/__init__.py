"""The command line. Importing this package imports next to nothing: see `main`."""

import os
import signal
from collections.abc import Sequence
from types import FrameType


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 1 is a bug, 2 what only the user can mend."""
    # Loading the rest takes a quarter of a second. A SIGTERM in that time would kill podgpu by the
    # signal, or, as process 1 of a container, be thrown away by the kernel.
    signal.signal(signal.SIGTERM, _leave)
    from pipeline.cli.main import run_command

    return run_command(argv)


def _leave(_signum: int, _frame: FrameType | None) -> None:
    """Nothing has been started yet: there is nothing to drain."""
    os._exit(0)
