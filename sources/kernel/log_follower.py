"""Reads the log as it is written, in the event loop, a bounded piece at a time."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from pipeline.base.clock import Clock
from pipeline.base.errors import TransientError
from pipeline.component.xid_rate_limit import XidRateLimit
from pipeline.model import Instant
from sources.kernel import log_records
from sources.kernel.kmsg_device import NO_LOG, Log
from sources.kernel.log_records import Xid
from sources.kernel.log_timestamps import LogClock

_AT_ONCE: Final = 128
"""Records that are read before the event loop goes on with other things: a millisecond or two."""

_STRANGE: Final = 100
"""So many records on end that are none are read from something else, which may give them for ever.
"""

_WAITING: Final = 1024
"""Errors that wait to be told."""


@dataclass(slots=True)
class Progress:
    """How far the log has been read, and what is still to be told. Outlives runs of its source.

    Attributes:
        number: of the last record that was read; None before the first.
        moments: knows when records were written.
        rates: how many of a kind are reported.
        pending: errors that wait to be told.
    """

    number: int | None = None
    moments: LogClock | None = None
    rates: XidRateLimit = field(default_factory=XidRateLimit)
    pending: deque[tuple[Xid, Instant]] = field(default_factory=deque)


class LogReader:
    """Follows the log from where it was left, at first from its end.

    Entered, it reads whenever there is something to read.

    Args:
        log: the log, open.
        progress: how far it has been read.
        clock: the clock.
        on_loss: is told of what won't be told: a reason, and how many.
    """

    def __init__(
        self, log: Log, progress: Progress, clock: Clock, on_loss: Callable[[str, int], None]
    ) -> None:
        self._lose = on_loss
        self._log = log
        self._progress = progress
        self._clock = clock
        self._errors = progress.pending
        self._news = asyncio.Event()
        if self._errors:
            self._news.set()
        self._failure: Exception | None = None
        self._strange = 0
        now = clock.now()
        self._moments = progress.moments = progress.moments or LogClock(now)
        if progress.number is None:
            # Before the end is looked for: what is read from there on was written after this.
            self._moments.mark_read(now)
            log.to_the_end()

    def __enter__(self) -> Self:
        """Begin to read.

        Raises:
            TransientError: one can't wait for what was opened.
        """
        try:
            asyncio.get_running_loop().add_reader(self._log.fd, self._read)
        except PermissionError as error:
            raise TransientError(f"what was opened is no log that grows; {NO_LOG}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Read no more."""
        asyncio.get_running_loop().remove_reader(self._log.fd)

    async def next(self, within: float) -> list[tuple[Xid, Instant]]:
        """Wait for errors; an empty list if there were none for a while.

        They stay until they are said to be `mark_reported`, so that none is lost when the source
        has to stop meanwhile.

        Args:
            within: how long to wait, in seconds.

        Raises:
            TransientError: the log can't be read any more.
        """
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            return []
        if self._failure is not None and not self._errors:
            raise self._failure
        if self._failure is None:
            self._news.clear()
        return list(self._errors)

    def mark_reported(self, count: int) -> None:
        """Let go of the first errors: they were told."""
        for _ in range(count):
            self._errors.popleft()

    def _read(self) -> None:
        try:
            self._read_some()
        except Exception as error:  # noqa: BLE001 -- raised where the source runs
            self._failure = error
            self._news.set()
            asyncio.get_running_loop().remove_reader(self._log.fd)

    def _read_some(self) -> None:
        began = self._clock.now()
        for _ in range(_AT_ONCE):
            data = self._log.read()
            if data is None:
                self._moments.mark_read(began)
                return
            record = log_records.record(data)
            if record is None:
                self._lose("malformed", 1)
                self._strange += 1
                if self._strange >= _STRANGE:
                    raise TransientError(f"what is read is no kernel's log; {NO_LOG}")
                continue
            self._strange = 0
            before = self._progress.number
            if before is not None:
                if record.number <= before:
                    continue
                if missing := record.number - before - 1:
                    self._lose("overwritten", missing)
            self._progress.number = record.number
            if record.text:
                self._take(record.text, record.stamp_us)

    def _take(self, text: bytes, stamp_us: int) -> None:
        xid = log_records.xid(text)
        if xid is None:
            self._lose("malformed", 1)
            return
        at = self._moments.time_of(stamp_us, self._clock.now())
        if (
            not self._progress.rates.admits(xid.pci_bus_id, xid.code, at.mono_ns)
            or len(self._errors) >= _WAITING
        ):
            self._lose("xids", 1)
            return
        self._errors.append((xid, at))
        self._news.set()
