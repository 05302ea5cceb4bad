"""The sink `pods`."""

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

_PACE: Final = 0.1
"""Seconds from the beginning of one pod to that of the next."""

_AGAIN: Final = 8.0
"""Seconds that a new attempt may take before the sink is up: a stop can't cut it short."""

_SILENT: Final = 15.0
"""Seconds after which a kubelet that names no resource of GPUs is a matter for people."""


class PodsSink:
    """Keeps what pods hold in their annotations.

    Which pods are done is kept in the object: it is left and entered again after an error.

    Args:
        options: see `docs/sinks/pods.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._wants = glob_matcher(options.resources)
        self._complete = HolderCompleteness(ctx.clock)
        self._agenda = PodQueue()
        self._resources: frozenset[str] = frozenset()
        self._layout: Layout | None = None
        self._waiting = True
        self._silent_ns: int | None = None
        self._next_ns = 0
        self._closing: asyncio.Future[None] | None = None
        self._annotator = Annotator(ctx, lambda: self._stopping)
        self._leases = AsyncExitStack()
        self._api: KubeApi | None = None
        self._failed: TransientError | None = None

    async def __aenter__(self) -> Self:
        """Join the session with the API server; after a failure, see first that it is over.

        Raises:
            TransientError: there are no credentials, or it isn't over.
        """
        self._complete.begin()
        self._closing = None
        self._api = await self._leases.enter_async_context(self._ctx.kube(self._options.kubeconfig))
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
        """Leave the session. What was written stays."""
        self._api = None
        await self._leases.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Keep the annotations until the inbox ends.

        Raises:
            TransientError: the API server refused, couldn't be reached, or is none.
        """
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            self._closing = arrivals.closing
            while not arrivals.ended:
                self._take(arrivals.latest)
                await self._work(arrivals.closing)
                await arrivals.wait(self._idle_seconds(arrivals.latest))

    @property
    def _stopping(self) -> bool:
        """Whether no request is to begin any more."""
        return self._closing is not None and self._closing.done()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Work out what pods hold, once those who could name a holder have spoken."""
        if snapshot is None:
            return
        self._waiting = not self._complete.is_complete(snapshot)
        if self._waiting:
            return
        if self._silent_ns is None:
            self._silent_ns = self._ctx.clock.now().mono_ns + round(_SILENT * NS)
        if snapshot.layout is not self._layout:
            self._layout = layout = snapshot.layout
            # What was of GPUs once is so for good: the kubelet may not be heard now.
            self._resources |= {name for name in layout.resources if self._wants(name)}
            if self._resources:
                pods = desired_annotations(layout.attributions.values(), self._resources)
                self._agenda.update(pods)
                self._annotator.retain(pods)
        self._warn()

    def _warn(self) -> None:
        """Say that nothing can be written, once it has been so for a while."""
        if self._seconds_until_warning() == 0:
            self._silent_ns = -1
            warn(
                self._ctx,
                "nothing is written: no resource like %s is known to be GPUs; it takes the source "
                "podresources or checkpoint, a device plugin that the kubelet knows, and that "
                "`resources` lets its resources through",
                ", ".join(self._options.resources),
            )

    def _seconds_until_warning(self) -> float | None:
        """Return the seconds until it is said that no resource is known; None for never."""
        if self._resources or self._silent_ns is None or self._silent_ns < 0:
            return None
        return max(self._silent_ns - self._ctx.clock.now().mono_ns, 0) / NS

    async def _work(self, closed: asyncio.Future[None]) -> None:
        """See to one pod, if it is time; once the sink has to stop, only for a short time."""
        now_ns = self._ctx.clock.now().mono_ns
        if self._stopping or now_ns < self._next_ns:
            return
        if (due := self._agenda.next(now_ns)) is None:
            return
        work = await run_until_stopped(self._update_pod(*due), closed)
        try:
            work.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closed.done():
                raise
            place, _ = due
            told = str(error) or "no answer in time"
            warn(self._ctx, "pod %s may not have its annotations: %s", place, told)

    async def _retry_one(self, failed: TransientError) -> None:
        """Try one pod; as long as the same is wrong the sink isn't up, and that is told once."""
        self._take(self._ctx.latest())
        due = self._agenda.next(self._ctx.clock.now().mono_ns)
        if due is None:
            self._failed = None
            return
        try:
            async with asyncio.timeout(_AGAIN):
                await self._update_pod(*due)
        except TimeoutError:
            raise TransientError(str(failed)) from None
        except TransientError as error:
            if _kind(error) != _kind(failed):
                raise
            raise TransientError(str(failed), retry_after=error.retry_after) from error

    async def _update_pod(self, place: PodRef, what: DesiredAnnotations) -> None:
        api = self._api
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        self._next_ns = self._ctx.clock.now().mono_ns + round(_PACE * NS)
        try:
            done = await self._annotator.update_pod(api, place, what)
        except TransientError as error:
            # The text names the pod; said again for each, it would be no news.
            if self._failed is None or _kind(self._failed) != _kind(error):
                self._failed = error
            raise
        self._failed = None
        now_ns = self._ctx.clock.now().mono_ns
        if done:
            self._agenda.record_done(place, now_ns)
        else:
            self._agenda.postpone(place, now_ns)

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return how long there is nothing to do but wait for a snapshot."""
        if latest is None or self._stopping:
            return None
        now_ns = self._ctx.clock.now().mono_ns
        due = self._agenda.seconds_left(now_ns)
        rests = [self._complete.seconds_left() if self._waiting else self._seconds_until_warning()]
        if due is not None:
            rests.append(max(due, (self._next_ns - now_ns) / NS))
        return min((max(rest, 0) for rest in rests if rest is not None), default=None)


def _kind(error: TransientError) -> tuple[int, str]:
    """Return what is equal for two errors if the second is no news after the first."""
    return error.dedup_key if isinstance(error, ApiError) else (0, type(error).__name__)
