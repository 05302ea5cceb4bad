"""The sink `podlist`: keeps podgpu's entries in a pod list up to date."""

from functools import partial
from typing import Final, Self

from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.files.file_thread import FileThread
from pipeline.model import NS, Instant, Layout, Snapshot
from sinks.podlist.entry_encoder import Entry, entries_of
from sinks.podlist.file_keeper import PodListFile
from sinks.podlist.options import Options

_READERS: Final = frozenset({"podlist"})
"""Kinds of sources that read pod lists. The holders that they report are not written to one."""

_CHECK_SECONDS: Final = 5.0
"""Seconds between checks of the file, because other programs write it too."""

_RETRY_SECONDS: Final = 0.1
_REPAIR_SECONDS: Final = 1.0
"""Seconds after which podgpu repairs an incomplete list. Until then another program may be writing
it."""


class PodListSink:
    """Keeps podgpu's entries in a pod list up to date.

    Args:
        options: options, see `docs/sinks/podlist.md`.
        ctx: context of the sink, from the runtime.
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
        self._incomplete_since: Instant | None = None

    async def __aenter__(self) -> Self:
        """Check whether the file can be updated, and remove temporary files of an earlier run."""
        self._complete.begin()
        await self._thread.open(self._keeper.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for a write in progress, within a time limit. The file stays as it is."""
        await self._thread.close()
        self._log_warnings()

    async def run(self, inbox: SinkInbox) -> None:
        """Keep the file up to date until the inbox ends."""
        self._due_ns = 0
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            while not arrivals.ended:
                if arrivals.latest is not None:
                    self._take(arrivals.latest)
                await self._keep()
                await arrivals.wait(self._idle_seconds(arrivals.latest))

    def _take(self, snapshot: Snapshot) -> None:
        """Compute podgpu's entries from a new layout, once no source is waited for any more.

        `HolderCompleteness` waits for sources that can report holders, for a limited time.
        """
        if not self._complete.is_complete(snapshot) or snapshot.layout is self._layout:
            return
        self._layout = snapshot.layout
        entries = entries_of(snapshot.layout.attributions.values(), self._options.ids)
        if entries != self._entries:
            self._entries, self._due_ns = entries, 0

    async def _keep(self) -> None:
        """Update the file, if an update or a check is due."""
        now = self._ctx.clock.now()
        if self._entries is None or now.mono_ns < self._due_ns:
            return
        repair = (
            self._incomplete_since is not None
            and self._incomplete_since.seconds_until(now) >= _REPAIR_SECONDS
        )
        try:
            done = await self._thread.call(
                partial(self._keeper.update, self._entries, repair=repair)
            )
        finally:
            self._log_warnings()
        if done:
            self._incomplete_since, delay = None, _CHECK_SECONDS
        else:
            self._incomplete_since, delay = self._incomplete_since or now, _RETRY_SECONDS
        self._due_ns = self._ctx.clock.now().mono_ns + round(delay * NS)

    def _log_warnings(self) -> None:
        for warning in self._keeper.take_warnings():
            warn(self._ctx, warning)

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds until an update or check is due, or until the wait for sources ends.

        None before the first snapshot: wait without a limit.
        """
        if self._entries is not None:
            return max((self._due_ns - self._ctx.clock.now().mono_ns) / NS, 0)
        return max(self._complete.seconds_left(), 0) if latest is not None else None
