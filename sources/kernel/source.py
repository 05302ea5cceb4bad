"""The kernel source: reports the XID errors in the kernel log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.component.contracts import SourceContext
from pipeline.component.restart_state import kept
from pipeline.model import Instant, XidReport, XidsReported
from sources.kernel.log_follower import LogReader, Progress
from sources.kernel.log_records import Xid
from sources.kernel.options import Options
from sources.kernel.process_owners import BlockingCalls, Process

HEARTBEAT_SECONDS: Final = 30.0
"""Interval in seconds at which the source shows that it is up if there are no errors."""

_REASONS: Final = ("malformed", "overwritten", "xids")


class _KernelState:
    """State that outlives the source: its progress in the log, and the thread for calls."""

    def __init__(self) -> None:
        self.lookups = BlockingCalls()
        self._read: tuple[Path, Progress] | None = None

    def progress(self, path: Path) -> Progress:
        """Return how far this log was read; the record numbers of another log do not apply."""
        if self._read is None or self._read[0] != path:
            self._read = path, Progress()
        return self._read[1]


class KernelSource:
    """Follows the kernel log. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Open the log, follow it and emit until cancelled.

        Raises:
            TransientError: the log is missing, may not be read, or has ended.
        """
        state = kept(ctx.restart_state, _KernelState)

        def count_loss(reason: str, count: int) -> None:
            ctx.meter.add("podgpu_source_dropped_total", count, reason=reason)

        for reason in _REASONS:
            count_loss(reason, 0)
        try:
            path = self._options.path
            with await state.lookups.open(path) as log:
                reader = LogReader(log, state.progress(path), ctx.clock, count_loss)
                await self._follow(ctx, state, reader)
        finally:
            state.lookups.thread.stop()

    async def _follow(self, ctx: SourceContext, state: _KernelState, reader: LogReader) -> None:
        with reader:
            await ctx.emit(XidsReported(()))
            while True:
                errors = await reader.next(HEARTBEAT_SECONDS)
                pids = {error.pid for error, _ in errors if error.pid is not None}
                processes = await state.lookups.lookup(
                    pids, self._options.proc, ctx.clock.now, ctx.log
                )
                reports = tuple([_report(xid, at, processes) for xid, at in errors])
                await ctx.emit(XidsReported(reports))
                state.progress(self._options.path).errors.mark_reported(len(errors))


def _report(xid: Xid, at: Instant, processes: Mapping[int, Process]) -> XidReport:
    process = processes.get(xid.pid) if xid.pid is not None else None
    owner = None if process is None else process.owner_at(at)
    return XidReport("", xid.pci_bus_id, xid.code, at, xid.pid, xid.process, owner)
