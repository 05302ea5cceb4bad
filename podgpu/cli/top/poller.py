"""Queries a daemon repeatedly."""

import threading
from collections.abc import Callable
from typing import Final

from pipeline.base.clock import Clock
from pipeline.base.errors import ComponentError
from pipeline.model import Instant
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.daemon_status import DaemonStatus

_LATE_SECONDS: Final = 4.0
"""Seconds after the usual time of a response from which on it is late."""


class Poller:
    """Queries the daemon repeatedly, in a thread, because a response can take long.

    Args:
        url: address of the daemon.
        interval: seconds between a response and the next query.
        clock: the clock with which ages of responses are measured.
        first: the status that is known at the start.
        query: function that queries the daemon at an address.
    """

    def __init__(
        self,
        url: str,
        interval: float,
        clock: Clock,
        first: StatusDocument,
        query: Callable[[str], StatusDocument],
    ) -> None:
        self._url = url
        self._interval = interval
        self._clock = clock
        self._query = query
        self._stop = threading.Event()
        # Replaced as a whole, so that the threads need no lock.
        self._known: tuple[StatusDocument, Instant, str] = (first, clock.now(), "")

    def start(self) -> None:
        """Start the thread. It runs until `stop` or the end of the process."""
        threading.Thread(target=self._run, name="podgpu-top", daemon=True).start()

    def stop(self) -> None:
        """Stop the queries."""
        self._stop.set()

    def daemon(self) -> DaemonStatus:
        """Return the last status, its age in whole seconds, and the error of the last query."""
        status, at, error = self._known
        age = at.seconds_until(self._clock.now())
        is_late = not error and age > self._interval + _LATE_SECONDS
        # Without an error the age is not shown, and equal states need not be drawn again.
        return DaemonStatus(status, float(int(age)) if error or is_late else 0.0, error, is_late)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._known = (self._query(self._url), self._clock.now(), "")
            except Exception as error:  # noqa: BLE001 - the user has to see every error
                bug = f"{type(error).__name__}: {error}; this is a bug in podgpu"
                text = str(error) if isinstance(error, ComponentError) else bug
                self._known = (*self._known[:2], text)
