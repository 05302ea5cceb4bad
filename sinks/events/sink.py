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

_RETRY_TIMEOUT_S: Final = 8.0
"""Maximum number of seconds for a retry on entering, because a stop can't interrupt it."""

_KEY: Final = "agenda"


class EventsSink:
    """Reports XID errors as Events on the affected pods.

    The queue survives failures and reloads, so that no error is reported twice or forgotten.

    Args:
        options: see `docs/sinks/events.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._is_wanted_namespace = glob_matcher(options.namespaces)
        self._codes = frozenset(options.codes)
        self._wait, self._repeat = float(options.wait), float(options.repeat)
        kept = ctx.restart_state.get(_KEY)
        self._queue = kept if isinstance(kept, EventQueue) else EventQueue()
        ctx.restart_state[_KEY] = self._queue
        self._writer = Writer(ctx)
        self._next_due_s: float | None = None
        self._exit_stack = AsyncExitStack()
        self._api: KubeApi | None = None
        self._failed: TransientError | None = None

    async def __aenter__(self) -> Self:
        """Open the session with the API server. After a failure, first try whether it is over.

        Raises:
            TransientError: there are no credentials, or the failure is not over.
        """
        self._api = await self._exit_stack.enter_async_context(
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
        """Close the session. Written Events stay."""
        self._api = None
        await self._exit_stack.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Write Events until the inbox ends.

        Raises:
            TransientError: the API server refused, or was not reachable.
        """
        # The previous options may have queued errors that these exclude. They are removed without
        # being counted, and only now, because a reload could still be rejected before.
        self._queue.retain(self._is_wanted)
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            closing = arrivals.closing
            while not arrivals.ended:
                self._collect(arrivals.latest)
                if (work := self._next_work()) is not None and not closing.done():
                    await self._write_until_stopped(*work, closing)
                await arrivals.wait(None if closing.done() else self._idle_seconds())
        if waiting := self._queue.waiting:
            self._ctx.log.info("%d XID errors get no Event: the sink is stopping", waiting)

    def _collect(self, snapshot: Snapshot | None) -> None:
        """Queue errors whose details are complete; remove those that are too old."""
        late = self._queue.expire(self._ctx.clock.now(), self._repeat)
        self._writer.count("late", late)
        if snapshot is None or not snapshot.xids:
            self._next_due_s = None
            return
        queue, errors = self._queue, snapshot.xids
        if queue.done is not None and (missed := errors[0].serial - queue.done - 1) > 0:
            self._writer.count("missed", missed)
            queue.done += missed
        due, self._next_due_s = due_errors(
            errors, queue.done or 0, self._ctx.clock.now(), self._wait
        )
        for error in due:
            queue.done = error.serial
            if not self._is_wanted_code(error.code):
                continue
            affected, nameless = pod_errors(error, self._is_wanted_namespace)
            self._writer.count("nameless", nameless)
            for subject, pod_error in affected:
                if not queue.add(subject, pod_error):
                    self._writer.count("crowded", 1)

    def _is_wanted(self, subject: EventSubject) -> bool:
        return self._is_wanted_code(subject.code) and self._is_wanted_namespace(subject.namespace)

    def _is_wanted_code(self, code: int) -> bool:
        return not self._codes or code in self._codes

    def _next_work(self) -> tuple[EventSubject, PendingEvent] | None:
        now = self._ctx.clock.now()
        return self._queue.next(now, self._repeat, self._options.per_minute)

    def _idle_seconds(self) -> float | None:
        """Return the seconds until there is work without a new snapshot; None if there is none."""
        now = self._ctx.clock.now()
        left = self._queue.seconds_left(now, self._repeat, self._options.per_minute)
        times = [seconds for seconds in (self._next_due_s, left) if seconds is not None]
        return min(times, default=None)

    async def _write_until_stopped(
        self, subject: EventSubject, pending: PendingEvent, closed: asyncio.Future[None]
    ) -> None:
        """Write an Event. When the sink has to stop, abandon it after the time limit."""
        work = await run_until_stopped(self._write(subject, pending), closed)
        try:
            work.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closed.done():
                raise
            text = str(error) or "no response in time"
            warn(
                self._ctx,
                "it is unknown whether the Event on pod %s/%s was written: %s",
                subject.namespace,
                subject.pod,
                text,
            )

    async def _retry_one(self, failed: TransientError) -> None:
        """Try one Event. While the same failure lasts, raise its first text, to log it once."""
        self._collect(self._ctx.latest())
        work = self._next_work()
        if work is None:
            self._failed = None
            return
        try:
            async with asyncio.timeout(_RETRY_TIMEOUT_S):
                await self._write(*work)
        except TimeoutError:
            # Perhaps only this Event is slow.
            self._queue.record_failed(work[1], self._ctx.clock.now())
            raise TransientError(str(failed)) from None
        except TransientError as error:
            if _kind(error) != _kind(failed):
                raise
            raise TransientError(str(failed), retry_after=error.retry_after) from error

    async def _write(self, subject: EventSubject, pending: PendingEvent) -> None:
        api, queue = self._api, self._queue
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        try:
            done = await self._writer.write(api, subject, pending)
        except TransientError as error:
            queue.record_failed(pending, self._ctx.clock.now())
            # The text names the pod. Keep the first text, so that the same failure is logged once.
            if self._failed is None or _kind(self._failed) != _kind(error):
                self._failed = error
            raise
        self._failed = None
        now = self._ctx.clock.now()
        if isinstance(done, str):
            self._writer.count(done, queue.record_refused(pending, now))
        else:
            queue.record_written(pending, *done, now)


def _kind(error: TransientError) -> tuple[int, str]:
    """Return a key that is equal for two errors with the same cause."""
    return error.dedup_key if isinstance(error, ApiError) else (0, type(error).__name__)
