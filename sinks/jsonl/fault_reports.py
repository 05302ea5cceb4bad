"""Collect failures that lose no line. Threads record them; the event loop logs and counts them."""

import logging
from collections import deque
from typing import Final, Literal, TypeAlias

from pipeline.base.telemetry import Meter
from pipeline.model import Instant
from sinks.jsonl.target import reason_of

Operation: TypeAlias = Literal["compress", "fsync"]

_ERRORS: Final = "podgpu_sink_errors_total"
_FAILURES: Final = {
    "compress": "cannot compress a rotated file of %s: %s; it stays uncompressed, and podgpu "
    "tries again at the next rotation",
    "fsync": "cannot flush %s to the disk: %s; lines may be missing from that file after a "
    "power failure, so podgpu starts a new file",
}
_RECOVERIES: Final = {
    "compress": "rotated files of %s are compressed again",
    "fsync": "%s is flushed to the disk again",
}


class FailureLog:
    """Collects failures until they are logged.

    The list stays short: each failing call adds one entry, and it is logged after a few calls.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[Operation, OSError | None]] = deque()
        self._failing: set[Operation] = set()
        self._logged: dict[Operation, str] = {}

    def record_failure(self, what: Operation, cause: OSError) -> None:
        """Record a failure. Thread-safe."""
        self._failing.add(what)
        self._pending.append((what, cause))

    def record_success(self, what: Operation) -> None:
        """Record a success, which ends a failure. Thread-safe."""
        if what in self._failing:
            self._failing.discard(what)
            self._pending.append((what, None))

    def log_new(self, name: str, log: logging.Logger, meter: Meter, now: Instant) -> None:
        """Count all recorded failures, and log each different one once."""
        while self._pending:
            what, cause = self._pending.popleft()
            if cause is None:
                self._logged.pop(what, None)
                log.info(_RECOVERIES[what], name)
                continue
            meter.add(_ERRORS, operation=what, reason=reason_of(cause))
            text = cause.strerror or str(cause)
            meter.set_problem(_FAILURES[what] % (name, text), now)
            if self._logged.get(what) != text:
                self._logged[what] = text
                log.warning(_FAILURES[what], name, text)
