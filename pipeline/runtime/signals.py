"""The signals that end a daemon."""

import asyncio
import logging
import signal
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(stop: asyncio.Event, log: logging.Logger) -> None:
    """Set `stop` at SIGTERM and at SIGINT, in the running event loop."""

    def handle(signum: signal.Signals) -> None:
        log.info("%s: stopping", signum.name)
        stop.set()

    for signum in _ENDING:
        asyncio.get_running_loop().add_signal_handler(signum, handle, signum)


def ignore_signals() -> None:
    """Let no signal change the exit status any more: all that there was to stop has stopped.

    A loop that closes gives signals back to the kernel, which would end the process by a second
    SIGTERM while Python is still tidying up.
    """
    for signum in (*_ENDING, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(signum)
        signal.signal(signum, signal.SIG_IGN)
