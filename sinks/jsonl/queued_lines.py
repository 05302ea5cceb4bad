"""Write JSON lines from a queue."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Final, Self, TypeAlias

from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import wait_first
from pipeline.delivery.contract import Acked, Outcome, Record, Retry
from pipeline.model import Snapshot
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.line_writer import LineWriter
from sinks.jsonl.options import Options
from sinks.jsonl.target import WriteFault

_SLOW_WRITE_S: Final = 10.0
"""Seconds after which a write that has not returned is reported as blocked."""

_CHUNK: Final = 256 << 10
"""Maximum number of bytes per write."""

_Write: TypeAlias = "tuple[Sequence[Record], asyncio.Future[WriteFault | None]]"
"""Lines that are being written, and the call, which may block until a process reads the pipe."""


class LinesPush(LineWriter):
    """Implements `PushSink`: a record is a line, and sending a record means writing the line.

    A write that hangs can't be cancelled. Therefore the sink remembers the write: if it succeeds
    later, its lines are not written again.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        super().__init__(options, ctx)
        # A chunk goes to one file, so it must not exceed the maximum size of a file.
        self._chunk = min(_CHUNK, int(options.max_size) or _CHUNK)
        self._write: _Write | None = None

    async def __aenter__(self) -> Self:
        """Open the target, and repair its end if podgpu was killed during a write."""
        self._write = None
        return await super().__aenter__()

    def encode(self, snapshot: Snapshot) -> Iterator[Record]:
        """Yield a record for each line. A line of podgpu's own metrics counts as one point."""
        batch = self._encoder.encode(snapshot)
        for line, readings in zip(batch.lines, batch.readings, strict=True):
            yield Record(line, max(readings, 1), snapshot.at.wall_ns)

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Write lines, chunk by chunk.

        Return `Retry`, with the number of written records, if a write fails or hangs.
        """
        done = 0
        while True:
            if self._write is None:
                if done == len(records):
                    return Acked()
                self._write = self._start_chunk(records[done:])
            attempted, call = self._write
            if not await wait_first(self._ctx.clock, _SLOW_WRITE_S, call):
                text = f"{self.name} has accepted no data for {_SLOW_WRITE_S:g} s"
                return Retry("blocked", text, accepted=done)
            self._write, fault = None, call.result()
            self.log_failures()
            written = attempted if fault is None else attempted[: fault.lines]
            done += _overlap_count(written, records[done:])
            if fault is not None:
                text = f"cannot write {self.name}: {fault}{fault.fix}"
                return Retry(fault.reason, text, accepted=done)

    def _start_chunk(self, records: Sequence[Record]) -> _Write:
        ends = itertools.accumulate(len(record.data) for record in records)
        fitting = sum(end <= self._chunk for end in ends)
        records = records[: max(fitting, 1)]
        batch = Batch([record.data for record in records], [record.points for record in records])
        return records, asyncio.wrap_future(self.start_write(batch))


def _overlap_count(written: Sequence[Record], records: Sequence[Record]) -> int:
    """Return how many of `records`, from the first, are the last ones of `written`.

    While a write hung, a full queue may have dropped the first records of that write.
    """
    for count in range(min(len(written), len(records)), 0, -1):
        if tuple(written[-count:]) == tuple(records[:count]):
            return count
    return 0
