"""The kernel source: XID errors as the kernel's log tells of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pipeline.component.contracts import SourceContext
from pipeline.model import Instant, XidReport, XidsReported
from sources.kernel.log_follower import LogReader, Progress
from sources.kernel.log_records import Xid
from sources.kernel.lookup_thread import BlockingCalls
from sources.kernel.options import Options
from sources.kernel.process_owners import Process

HEARTBEAT_SECONDS: Final = 30.0
"""Seconds after which the source says that it is there, though there is nothing to tell."""

_REASONS: Final = ("malformed", "overwritten", "xids")
_KEY: Final = "kernel"


class _KernelState:
    """What outlives the source: how far it has read and told, and its thread."""

    def __init__(self) -> None:
        self.lookups = BlockingCalls()
        self._read: tuple[Path, Progress] | None = None

    def progress(self, path: Path) -> Progress:
        """Return how far a log has been read; numbers of another one's records mean nothing."""
        if self._read is None or self._read[0] != path:
            self._read = path, Progress()
        return self._read[1]

    @classmethod
    def of(cls, restart_state: dict[str, object]) -> "_KernelState":
        found = restart_state.get(_KEY)
        if not isinstance(found, cls):
            found = restart_state[_KEY] = cls()
        return found


class KernelSource:
    """Follows the kernel's log. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Open the log, follow it and emit until cancelled.

        Raises:
            TransientError: the log isn't there, may not be read, or has ended.
        """
        kept = _KernelState.of(ctx.restart_state)

        def lose(reason: str, count: int) -> None:
            ctx.meter.add("podgpu_source_dropped_total", count, reason=reason)

        for reason in _REASONS:
            lose(reason, 0)
        try:
            path = self._options.path
            with await kept.lookups.open(path) as log:
                following = LogReader(log, kept.progress(path), ctx.clock, lose)
                await self._follow(ctx, kept, following)
        finally:
            kept.lookups.stop_idle_thread()

    async def _follow(self, ctx: SourceContext, kept: _KernelState, following: LogReader) -> None:
        with following:
            await ctx.emit(XidsReported(()))
            while True:
                errors = await following.next(HEARTBEAT_SECONDS)
                pids = {error.pid for error, _ in errors if error.pid is not None}
                found = await kept.lookups.lookup(pids, self._options.proc, ctx.clock.now, ctx.log)
                await ctx.emit(XidsReported(_reports(errors, found)))
                following.mark_reported(len(errors))


def _reports(
    errors: Sequence[tuple[Xid, Instant]], found: Mapping[int, Process]
) -> tuple[XidReport, ...]:
    return tuple([_report(xid, at, found) for xid, at in errors])


def _report(xid: Xid, at: Instant, found: Mapping[int, Process]) -> XidReport:
    process = found.get(xid.pid) if xid.pid is not None else None
    owner = None if process is None else process.owner_at(at)
    return XidReport("", xid.pci_bus_id, xid.code, at, xid.pid, xid.process, owner)
