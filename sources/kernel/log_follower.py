"""Follows the kernel log on the event loop, a limited number of records at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from pipeline.base.clock import Clock
from pipeline.base.errors import TransientError
from pipeline.component.xid_rate_limit import PendingXids
from pipeline.model import Instant
from sources.kernel import log_records
from sources.kernel.kmsg_device import NO_LOG, Log
from sources.kernel.log_records import Xid

_DRIFT: Final = 2000
"""The kernel's clock loses at most 1/2000: NTP corrects by at most 500 in a million."""

_BATCH: Final = 128
"""Records that are read in one step of the event loop, which takes a millisecond or two."""

_MAX_MALFORMED: Final = 100
"""After so many successive malformed records, the input is not a kernel log, and may never end."""


class LogClock:
    """Converts time stamps of records to times: not before the last read, and not after now.

    The kernel's time stamps come from a clock that is never corrected. It starts like the monotonic
    clock, drifts from it by seconds in a week, and may stop or continue while the machine sleeps.
    So the offset between the clocks is estimated from the times at which records can be read.

    Args:
        now: when the log was opened, or when it was last read to its end.
    """

    def __init__(self, now: Instant) -> None:
        self._offset_ns: int | None = None
        self._updated_ns = self._read_until_ns = now.mono_ns

    def mark_read(self, at: Instant) -> None:
        """Note that all records that were written before this time have been read."""
        self._read_until_ns = at.mono_ns

    def time_of(self, stamp_us: int, now: Instant) -> Instant:
        """Return when a record was written.

        Args:
            stamp_us: time stamp of the record, in microseconds.
            now: the present time, at which the record was just read.
        """
        stamp_ns = stamp_us * 1000
        minimum_ns, maximum_ns = self._read_until_ns - stamp_ns, now.mono_ns - stamp_ns
        if self._offset_ns is None:
            offset_ns = maximum_ns
        else:
            drift_ns = (now.mono_ns - self._updated_ns) // _DRIFT
            offset_ns = max(minimum_ns, min(self._offset_ns + drift_ns, maximum_ns))
        self._offset_ns, self._updated_ns = offset_ns, now.mono_ns
        age_ns = now.mono_ns - (stamp_ns + offset_ns)
        return Instant(now.mono_ns - age_ns, now.wall_ns - age_ns)


@dataclass(slots=True)
class Progress:
    """How far the log was read, and which errors are not reported yet.

    It outlives the runs of its source.

    Attributes:
        number: number of the last record that was read; None before the first.
        log_clock: calculates when records were written.
        errors: errors that are not reported yet.
    """

    number: int | None = None
    log_clock: LogClock | None = None
    errors: PendingXids[tuple[Xid, Instant]] = field(default_factory=PendingXids)


class LogReader:
    """Follows the log from where an earlier run stopped, at first from its end.

    Within its context, it reads whenever there is new data.

    Args:
        log: the opened log.
        progress: how far the log was read.
        clock: the clock.
        on_loss: called for records that are not reported, with a reason and their number.
    """

    def __init__(
        self, log: Log, progress: Progress, clock: Clock, on_loss: Callable[[str, int], None]
    ) -> None:
        self._on_loss = on_loss
        self._log = log
        self._progress = progress
        self._clock = clock
        self._errors = progress.errors
        self._available = asyncio.Event()
        if self._errors.pending:
            self._available.set()
        self._failure: Exception | None = None
        self._malformed = 0
        now = clock.now()
        self._log_clock = progress.log_clock = progress.log_clock or LogClock(now)
        if progress.number is None:
            # Before the skip, since records from there on are written after this time.
            self._log_clock.mark_read(now)
            log.skip_to_end()

    def __enter__(self) -> Self:
        """Start reading.

        Raises:
            TransientError: the event loop cannot wait for data of this file.
        """
        try:
            asyncio.get_running_loop().add_reader(self._log.fd, self._read)
        except PermissionError as error:
            raise TransientError(f"the opened file is not a kernel log; {NO_LOG}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading."""
        asyncio.get_running_loop().remove_reader(self._log.fd)

    async def next(self, within: float) -> Sequence[tuple[Xid, Instant]]:
        """Wait for errors; return all that are not reported yet, none if there are none in time.

        The errors stay in `Progress.errors` until they are marked there as reported, so that no
        error is lost if the source stops meanwhile.

        Args:
            within: how long to wait, in seconds.

        Raises:
            TransientError: the log cannot be read any more.
        """
        try:
            async with asyncio.timeout(within):
                await self._available.wait()
        except TimeoutError:
            return ()
        if self._failure is not None and not self._errors.pending:
            raise self._failure
        if self._failure is None:
            self._available.clear()
        return self._errors.pending

    def _read(self) -> None:
        try:
            self._read_some()
        except Exception as error:  # noqa: BLE001 -- raised in the task of the source
            self._failure = error
            self._available.set()
            asyncio.get_running_loop().remove_reader(self._log.fd)

    def _read_some(self) -> None:
        started = self._clock.now()
        for _ in range(_BATCH):
            data = self._log.read()
            if data is None:
                self._log_clock.mark_read(started)
                return
            record = log_records.record(data)
            if record is None:
                self._on_loss("malformed", 1)
                self._malformed += 1
                if self._malformed >= _MAX_MALFORMED:
                    raise TransientError(f"the data is not a kernel log; {NO_LOG}")
                continue
            self._malformed = 0
            last_number = self._progress.number
            if last_number is not None:
                if record.number <= last_number:
                    continue
                if missing := record.number - last_number - 1:
                    self._on_loss("overwritten", missing)
            self._progress.number = record.number
            if record.text:
                self._take(record.text, record.stamp_us)

    def _take(self, text: bytes, stamp_us: int) -> None:
        xid = log_records.xid(text)
        if xid is None:
            self._on_loss("malformed", 1)
            return
        at = self._log_clock.time_of(stamp_us, self._clock.now())
        if self._errors.add((xid, at), xid.pci_bus_id, xid.code, at.mono_ns):
            self._available.set()
        else:
            self._on_loss("xids", 1)
