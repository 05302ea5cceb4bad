"""What fails though lines are written: found in threads, told by the event loop."""

import logging
from collections import deque
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pipeline.base.telemetry import Meter
from pipeline.model import Instant
from sinks.jsonl.target import reason_of

Operation: TypeAlias = Literal["compress", "fsync"]

_ERRORS: Final = "podgpu_sink_errors_total"
_TEXTS: Final = MappingProxyType(
    {
        "compress": "cannot compress a full file of %s: %s; it stays as it is, and is tried again "
        "with the next one",
        "fsync": "cannot flush %s to the disk: %s; lines may be missing from that file after a "
        "power cut, so that new ones go to a new file",
    }
)
_ENDS: Final = MappingProxyType(
    {
        "compress": "full files of %s are compressed again",
        "fsync": "%s is flushed to the disk again",
    }
)


class FailureLog:
    """Notes what failed until it can be told.

    No more is noted than there are calls that fail, and each is told before the next but a few.
    """

    def __init__(self) -> None:
        self._noted: deque[tuple[Operation, OSError | None]] = deque()
        self._failing: set[Operation] = set()
        self._logged: dict[Operation, str] = {}

    def record_failure(self, what: Operation, cause: OSError) -> None:
        """Say that something failed. From any thread."""
        self._failing.add(what)
        self._noted.append((what, cause))

    def record_success(self, what: Operation) -> None:
        """Say that something was done. From any thread."""
        if what in self._failing:
            self._failing.discard(what)
            self._noted.append((what, None))

    def log_new(self, name: str, log: logging.Logger, meter: Meter, now: Instant) -> None:
        """Count all that was noted, and log a fault once."""
        while self._noted:
            what, cause = self._noted.popleft()
            if cause is None:
                self._logged.pop(what, None)
                log.info(_ENDS[what], name)
                continue
            meter.add(_ERRORS, operation=what, reason=reason_of(cause))
            text = cause.strerror or str(cause)
            meter.set_problem(_TEXTS[what] % (name, text), now)
            if self._logged.get(what) != text:
                self._logged[what] = text
                log.warning(_TEXTS[what], name, text)
