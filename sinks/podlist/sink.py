"""The sink `podlist`."""

from functools import partial
from types import TracebackType
from typing import Final, Self

from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.files.file_thread import FileThread
from pipeline.model import NS, Instant, Layout, Snapshot
from sinks.podlist.file_keeper import PodListFile
from sinks.podlist.list_entries import Entry, entries_of
from sinks.podlist.options import Options

_READERS: Final = frozenset({"podlist"})
"""Sources that read pod lists: their word is not written into one."""

_LOOK: Final = 5.0
"""Seconds between two looks at the file: others write it too."""

_SOON: Final = 0.1
_TORN: Final = 1.0
"""Seconds after which nobody is believed to be at work on a list that has no end."""


class PodListSink:
    """Keeps podgpu's entries in a pod list.

    Args:
        options: see `docs/sinks/podlist.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._keeper = PodListFile(options.path, in_place=options.write == "inplace")
        self._thread = FileThread(f"podgpu-sink-{ctx.name}", options.path, partial(warn, ctx))
        self._complete = HolderCompleteness(ctx.clock, besides=_READERS)
        self._layout: Layout | None = None
        self._entries: tuple[Entry, ...] | None = None
        self._due_ns = 0
        self._torn: Instant | None = None

    async def __aenter__(self) -> Self:
        """Look whether the file can be kept."""
        self._complete.begin()
        await self._thread.open(self._keeper.open)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Leave the file as it is, after the write that has begun, unless that takes too long."""
        await self._thread.close()
        self._log_warnings()

    async def run(self, inbox: SinkInbox) -> None:
        """Keep the file until the inbox ends."""
        self._due_ns = 0
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            while not arrivals.ended:
                if arrivals.latest is not None:
                    self._take(arrivals.latest)
                await self._keep()
                await arrivals.wait(self._idle_seconds(arrivals.latest))

    def _take(self, snapshot: Snapshot) -> None:
        """Work out our entries, once those who could name a holder have spoken."""
        if not self._complete.is_complete(snapshot) or snapshot.layout is self._layout:
            return
        self._layout = snapshot.layout
        entries = entries_of(snapshot.layout.attributions.values(), self._options.ids)
        if entries != self._entries:
            self._entries, self._due_ns = entries, 0

    async def _keep(self) -> None:
        """Bring the file up to date, if it is time for that."""
        now = self._ctx.clock.now()
        if self._entries is None or now.mono_ns < self._due_ns:
            return
        mend = self._torn is not None and self._torn.seconds_until(now) >= _TORN
        try:
            done = await self._thread.call(partial(self._keeper.update, self._entries, repair=mend))
        finally:
            self._log_warnings()
        if done:
            self._torn, rest = None, _LOOK
        else:
            self._torn, rest = self._torn or now, _SOON
        self._due_ns = self._ctx.clock.now().mono_ns + round(rest * NS)

    def _log_warnings(self) -> None:
        for remark in self._keeper.take_warnings():
            warn(self._ctx, remark)

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return how long there is nothing to do but wait for a snapshot."""
        if self._entries is not None:
            return max((self._due_ns - self._ctx.clock.now().mono_ns) / NS, 0)
        return max(self._complete.seconds_left(), 0) if latest is not None else None
