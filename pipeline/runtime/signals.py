"""Handlers for the signals that stop a daemon."""

import asyncio
import logging
import signal
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(stop: asyncio.Event, log: logging.Logger) -> None:
    """Set `stop` on SIGTERM or SIGINT, and ignore all later signals.

    Call this in the running event loop.
    """

    def handle(signum: signal.Signals) -> None:
        # Another one may already wait to be handled.
        if not stop.is_set():
            log.info("%s: stopping", signum.name)
            stop.set()
            ignore_signals()

    for signum in _ENDING:
        asyncio.get_running_loop().add_signal_handler(signum, handle, signum)


def ignore_signals() -> None:
    """Ignore SIGTERM, SIGINT and SIGHUP, so that they cannot change the exit status.

    Call this in the event loop. A loop that closes restores the default handlers, and a second
    SIGTERM would kill the process while Python still cleans up.
    """
    for signum in (*_ENDING, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(signum)
        signal.signal(signum, signal.SIG_IGN)
