"""Lines that wait in a queue until they are written."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import wait_first
from pipeline.delivery.contract import Acked, Outcome, Record, Retry
from pipeline.model import Snapshot
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.options import Options
from sinks.jsonl.snapshot_encoder import SnapshotEncoder
from sinks.jsonl.target import UnwrittenError
from sinks.jsonl.target_factory import fix_for
from sinks.jsonl.target_thread import TargetThread

_SLOW: Final = 10.0
"""Seconds that a write may take before others are told that nothing goes on."""

_PIECE: Final = 256 << 10
"""Bytes that are written at once."""


@dataclass(frozen=True, slots=True)
class _Write:
    """A write that may take until somebody reads the pipe."""

    records: tuple[Record, ...]
    call: "asyncio.Future[UnwrittenError | None]"


class LinesPush:
    """Implements `PushSink`: a record is a line, and sending is writing.

    A write that hangs can't be taken back. So it is remembered: when it has ended after all, its
    lines are not written a second time.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._encoder = SnapshotEncoder(options, ctx)
        self._held = TargetThread(options, ctx)
        # A piece goes to one file, so that it is no larger than a file may be.
        self._piece = min(_PIECE, int(options.max_size) or _PIECE)
        self._write: _Write | None = None

    async def __aenter__(self) -> Self:
        """Open the file, and mend its end if podgpu was killed while it wrote there."""
        self._write = None
        await self._held.open()
        self._held.keep_flushing()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close the file after what is being written, unless that takes too long."""
        self._held.stop_flushing()
        await self._held.close()

    def encode(self, snapshot: Snapshot) -> Iterator[Record]:
        """Yield a record for each line; one of podgpu's own metrics counts as one point."""
        batch = self._encoder.encode(snapshot)
        for line, readings in zip(batch.lines, batch.readings, strict=True):
            yield Record(line, max(readings, 1), snapshot.at.wall_ns)

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Write lines, piece by piece."""
        self._held.check()
        done = 0
        while True:
            if self._write is None:
                if done == len(records):
                    return Acked()
                self._write = self._begun(tuple(records[done:]))
            write = self._write
            if not await wait_first(self._ctx.clock, _SLOW, write.call):
                text = f"{self._held.name} has taken nothing for {_SLOW:g} s"
                return Retry("blocked", text, accepted=done)
            self._write, fault = None, write.call.result()
            self._held.log_failures()
            written = write.records if fault is None else write.records[: fault.lines]
            done += _overlap_count(written, records[done:])
            if fault is not None:
                text = fault.cause.strerror or str(fault.cause)
                text = f"cannot write {self._held.name}: {text}{fix_for(fault.cause)}"
                return Retry(fault.reason, text, accepted=done)

    def _begun(self, records: tuple[Record, ...]) -> _Write:
        size = 0
        for count, record in enumerate(records):
            size += len(record.data)
            if count and size > self._piece:
                records = records[:count]
                break
        batch = Batch([record.data for record in records], [record.points for record in records])
        return _Write(records, asyncio.wrap_future(self._held.write(batch)))


def _overlap_count(written: Sequence[Record], records: Sequence[Record]) -> int:
    """Return how many of the first records are the last of those that were written.

    While a write hung, a full queue may have let go of the first of them.
    """
    for count in range(min(len(written), len(records)), 0, -1):
        if tuple(written[-count:]) == tuple(records[:count]):
            return count
    return 0
