"""The class `PodsSink`."""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi, SinkContext, SinkInbox
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.shutdown import run_until_stopped
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.model import NS, Layout, Snapshot
from pipeline.model.plugin_ids import glob_matcher
from sinks.pods.held_devices import DesiredAnnotations, PodRef, desired_annotations
from sinks.pods.options import Options
from sinks.pods.pod_annotator import Annotator
from sinks.pods.work_queue import PodQueue

_INTERVAL: Final = 0.1
"""Seconds between the starts of two updates."""

_RETRY_TIMEOUT: Final = 8.0
"""Seconds that a retry may take before the sink is up, during which a stop has to wait."""

_WARNING_DELAY: Final = 15.0
"""Seconds without any known resource of GPUs after which a warning is logged."""


class PodsSink:
    """Keeps the annotations of pods equal to the devices that they hold.

    Which pods are done is kept in the object, which is used again after an error.

    Args:
        options: see `docs/sinks/pods.md`.
        ctx: the context that the runtime provides.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._wants = glob_matcher(options.resources)
        self._completeness = HolderCompleteness(ctx.clock)
        self._queue = PodQueue()
        self._resources: frozenset[str] = frozenset()
        self._layout: Layout | None = None
        self._waiting = True
        self._warn_at_ns: int | None = None
        self._next_ns = 0
        self._closing: asyncio.Future[None] | None = None
        self._annotator = Annotator(ctx, lambda: self._stopping)
        self._session = AsyncExitStack()
        self._api: KubeApi | None = None
        self._failed: TransientError | None = None

    async def __aenter__(self) -> Self:
        """Open the session with the API server; after a failure, retry a pod first.

        Raises:
            TransientError: there are no credentials, or the failure continues.
        """
        self._completeness.begin()
        self._closing = None
        self._api = await self._session.enter_async_context(
            self._ctx.kube(self._options.kubeconfig)
        )
        try:
            if self._failed is not None:
                await self._retry_one(self._failed)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close the session. The annotations stay."""
        self._api = None
        await self._session.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Keep the annotations up to date until the inbox ends.

        Raises:
            TransientError: the API server refused, could not be reached, or is not an API server.
        """
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            self._closing = arrivals.closing
            while not arrivals.ended:
                self._take(arrivals.latest)
                await self._work(arrivals.closing)
                await arrivals.wait(self._idle_seconds(arrivals.latest))

    @property
    def _stopping(self) -> bool:
        """Whether no new request may begin."""
        return self._closing is not None and self._closing.done()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Determine what pods hold, once every source is up or has had time to start."""
        if snapshot is None:
            return
        self._waiting = not self._completeness.is_complete(snapshot)
        if self._waiting:
            return
        if self._warn_at_ns is None:
            self._warn_at_ns = self._ctx.clock.now().mono_ns + round(_WARNING_DELAY * NS)
        if snapshot.layout is not self._layout:
            self._layout = layout = snapshot.layout
            # A resource of GPUs stays one, also while the kubelet does not report it.
            self._resources |= {name for name in layout.resources if self._wants(name)}
            if self._resources:
                pods = desired_annotations(layout.attributions.values(), self._resources)
                self._queue.update(pods)
                self._annotator.retain(pods)
        self._warn()

    def _warn(self) -> None:
        """Log once that nothing can be written, after that has been so for a while."""
        if self._seconds_until_warning() == 0:
            self._warn_at_ns = -1
            warn(
                self._ctx,
                "no annotations are written: no extended resource that matches %s is known to have "
                "GPUs; this needs the source podresources or checkpoint, a device plugin that is "
                "registered with the kubelet, and `resources` that match its resources",
                ", ".join(self._options.resources),
            )

    def _seconds_until_warning(self) -> float | None:
        """Return the seconds until the warning that no resource is known; None for never."""
        if self._resources or self._warn_at_ns is None or self._warn_at_ns < 0:
            return None
        return max(self._warn_at_ns - self._ctx.clock.now().mono_ns, 0) / NS

    async def _work(self, closed: asyncio.Future[None]) -> None:
        """Update one pod if it is due; after a stop request only within the time for stopping."""
        now_ns = self._ctx.clock.now().mono_ns
        if self._stopping or now_ns < self._next_ns:
            return
        if (due := self._queue.next(now_ns)) is None:
            return
        work = await run_until_stopped(self._update_pod(*due), closed)
        try:
            work.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closed.done():
                raise
            place, _ = due
            reason = str(error) or "no response in time"
            warn(self._ctx, "pod %s: its annotations may be out of date: %s", place, reason)

    async def _retry_one(self, failed: TransientError) -> None:
        """Retry one pod. While it fails likewise the sink is not up, and that is logged once."""
        self._take(self._ctx.latest())
        due = self._queue.next(self._ctx.clock.now().mono_ns)
        if due is None:
            self._failed = None
            return
        try:
            async with asyncio.timeout(_RETRY_TIMEOUT):
                await self._update_pod(*due)
        except TimeoutError:
            raise TransientError(str(failed)) from None
        except TransientError as error:
            if _kind(error) != _kind(failed):
                raise
            raise TransientError(str(failed), retry_after=error.retry_after) from error

    async def _update_pod(self, place: PodRef, what: DesiredAnnotations) -> None:
        api = self._api
        assert api is not None  # noqa: S101 -- only called between entering and leaving
        self._next_ns = self._ctx.clock.now().mono_ns + round(_INTERVAL * NS)
        try:
            done = await self._annotator.update_pod(api, place, what)
        except TransientError as error:
            # The text names the pod: another pod's text would be logged as a new error.
            if self._failed is None or _kind(self._failed) != _kind(error):
                self._failed = error
            raise
        self._failed = None
        now_ns = self._ctx.clock.now().mono_ns
        if done:
            self._queue.record_done(place, now_ns)
        else:
            self._queue.postpone(place, now_ns)

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds for which there is nothing to do but wait for a snapshot."""
        if latest is None or self._stopping:
            return None
        now_ns = self._ctx.clock.now().mono_ns
        due = self._queue.seconds_left(now_ns)
        waits = [
            self._completeness.seconds_left() if self._waiting else self._seconds_until_warning()
        ]
        if due is not None:
            waits.append(max(due, (self._next_ns - now_ns) / NS))
        return min((max(wait, 0) for wait in waits if wait is not None), default=None)


def _kind(error: TransientError) -> tuple[int, str]:
    """Return a key that is equal for two errors if the second one is not logged."""
    return error.dedup_key if isinstance(error, ApiError) else (0, type(error).__name__)
