"""The sink `events`."""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi, SinkContext, SinkInbox
from pipeline.component.shutdown import run_until_stopped
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.model import Snapshot
from pipeline.model.plugin_ids import glob_matcher
from sinks.events.event_writer import Writer
from sinks.events.options import Options
from sinks.events.work_queue import EventQueue, PendingEvent
from sinks.events.xid_errors import EventSubject, due_errors, pod_errors

_AGAIN: Final = 8.0
"""Seconds that a new attempt may take before the sink is up: a stop can't cut it short."""

_KEY: Final = "agenda"


class EventsSink:
    """Tells of XID errors by Events on the pods that they struck.

    What was told, and what is still to be, is kept over errors and reloads.

    Args:
        options: see `docs/sinks/events.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._wants = glob_matcher(options.namespaces)
        self._codes = frozenset(options.codes)
        self._wait, self._repeat = float(options.wait), float(options.repeat)
        kept = ctx.restart_state.get(_KEY)
        self._agenda = kept if isinstance(kept, EventQueue) else EventQueue()
        ctx.restart_state[_KEY] = self._agenda
        self._writer = Writer(ctx)
        self._coming: float | None = None
        self._leases = AsyncExitStack()
        self._api: KubeApi | None = None
        self._failed: TransientError | None = None

    async def __aenter__(self) -> Self:
        """Join the session with the API server; after a failure, see first that it is over.

        Raises:
            TransientError: there are no credentials, or it isn't over.
        """
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
        """Write Events until the inbox ends.

        Raises:
            TransientError: the API server refused, or couldn't be reached.
        """
        # Those before may have taken in what these options leave out. Such errors are counted as
        # little as those that come now; and not before it runs: a reload may yet be refused.
        self._agenda.retain(self._wanted)
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            closing = arrivals.closing
            while not arrivals.ended:
                self._take(arrivals.latest)
                if (work := self._next()) is not None and not closing.done():
                    await self._unless_late(*work, closing)
                await arrivals.wait(None if closing.done() else self._idle_seconds())
        if waiting := self._agenda.waiting:
            self._ctx.log.info("%d XID errors are not told on pods: the sink stops", waiting)

    def _take(self, snapshot: Snapshot | None) -> None:
        """Take in errors about which nothing more is waited for; let go of what is too old."""
        late = self._agenda.expire(self._ctx.clock.now(), self._repeat)
        self._writer.count("late", late)
        if snapshot is None or not snapshot.xids:
            self._coming = None
            return
        agenda, errors = self._agenda, snapshot.xids
        if agenda.done is not None and (missed := errors[0].serial - agenda.done - 1) > 0:
            self._writer.count("missed", missed)
            agenda.done += missed
        found, self._coming = due_errors(
            errors, agenda.done or 0, self._ctx.clock.now(), self._wait
        )
        for error in found:
            agenda.done = error.serial
            if not self._wanted_code(error.code):
                continue
            struck, nameless = pod_errors(error, self._wants)
            self._writer.count("nameless", nameless)
            for whom, stroke in struck:
                if not agenda.add(whom, stroke):
                    self._writer.count("crowded", 1)

    def _wanted(self, subject: EventSubject) -> bool:
        return self._wanted_code(subject.code) and self._wants(subject.namespace)

    def _wanted_code(self, code: int) -> bool:
        return not self._codes or code in self._codes

    def _next(self) -> tuple[EventSubject, PendingEvent] | None:
        now = self._ctx.clock.now()
        return self._agenda.next(now, self._repeat, self._options.per_minute)

    def _idle_seconds(self) -> float | None:
        """Return how long there is nothing to do but wait for a snapshot, in seconds."""
        now = self._ctx.clock.now()
        left = self._agenda.seconds_left(now, self._repeat, self._options.per_minute)
        rests = [rest for rest in (self._coming, left) if rest is not None]
        return min(rests, default=None)

    async def _unless_late(
        self, subject: EventSubject, pending: PendingEvent, closed: asyncio.Future[None]
    ) -> None:
        """Write an Event; once the sink has to stop, only for so long as it has time."""
        work = await run_until_stopped(self._write(subject, pending), closed)
        try:
            work.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closed.done():
                raise
            told = str(error) or "no answer in time"
            warn(
                self._ctx,
                "pod %s/%s may not have its Event: %s",
                subject.namespace,
                subject.pod,
                told,
            )

    async def _retry_one(self, failed: TransientError) -> None:
        """Try one Event; as long as the same is wrong the sink isn't up, and that is told once."""
        self._take(self._ctx.latest())
        work = self._next()
        if work is None:
            self._failed = None
            return
        try:
            async with asyncio.timeout(_AGAIN):
                await self._write(*work)
        except TimeoutError:
            # It may be slow for this one pod alone.
            self._agenda.record_failed(work[1], self._ctx.clock.now())
            raise TransientError(str(failed)) from None
        except TransientError as error:
            if _kind(error) != _kind(failed):
                raise
            raise TransientError(str(failed), retry_after=error.retry_after) from error

    async def _write(self, subject: EventSubject, pending: PendingEvent) -> None:
        api, agenda = self._api, self._agenda
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        try:
            done = await self._writer.write(api, subject, pending)
        except TransientError as error:
            agenda.record_failed(pending, self._ctx.clock.now())
            # The text names the place; said again for each, it would be no news.
            if self._failed is None or _kind(self._failed) != _kind(error):
                self._failed = error
            raise
        self._failed = None
        now = self._ctx.clock.now()
        if isinstance(done, str):
            self._writer.count(done, agenda.record_refused(pending, now))
        else:
            agenda.record_written(pending, *done, now)


def _kind(error: TransientError) -> tuple[int, str]:
    """Return what is equal for two errors if the second is no news after the first."""
    return error.dedup_key if isinstance(error, ApiError) else (0, type(error).__name__)
