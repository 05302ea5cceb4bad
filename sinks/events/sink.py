"""The sink `events`."""

import asyncio
from functools import partial
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.kube.api_sink import ApiSink, Work
from pipeline.model import Snapshot
from pipeline.model.plugin_ids import glob_matcher
from sinks.events.affected_pods import EventSubject, due_errors, pod_errors
from sinks.events.event_queue import EventQueue, PendingEvent
from sinks.events.event_writer import Writer
from sinks.events.options import Options

_KEY: Final = "agenda"


class EventsSink(ApiSink):
    """Reports XID errors as Events on the affected pods.

    The queue is kept over failures and reloads. So a reload neither loses an error nor reports it
    twice.

    Args:
        options: see `docs/sinks/events.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        super().__init__(options.kubeconfig, ctx)
        self._options = options
        self._is_wanted_namespace = glob_matcher(options.namespaces)
        self._codes = frozenset(options.codes)
        self._wait, self._repeat = float(options.wait), float(options.repeat)
        kept = ctx.restart_state.get(_KEY)
        self._queue = kept if isinstance(kept, EventQueue) else EventQueue()
        ctx.restart_state[_KEY] = self._queue
        self._writer = Writer(ctx)
        self._next_due_s: float | None = None

    async def run(self, inbox: SinkInbox) -> None:
        """Write Events until the inbox ends.

        Raises:
            TransientError: the API server refused a request, or was not reachable.
        """
        # The previous options may have queued errors that these exclude. They are removed without
        # being counted, and only now, because a reload could still be rejected before.
        self._queue.retain(self._is_wanted)
        await super().run(inbox)

    async def _end(self) -> None:
        if waiting := self._queue.waiting:
            self._ctx.log.info(
                "%d XID errors have no Event yet: the sink is stopping; their Events are written "
                "after a reload, but not after a restart of podgpu",
                waiting,
            )

    def _take(self, snapshot: Snapshot | None) -> None:
        """Queue errors that have waited for details, and remove errors that are too old.

        Errors that get no Event are counted.
        """
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

    def _next_work(self) -> Work | None:
        now = self._ctx.clock.now()
        if (due := self._queue.next(now, self._repeat, self._options.per_minute)) is None:
            return None
        subject = due[0]
        place = f"pod {subject.namespace}/{subject.pod}"
        return Work(
            partial(self._write, *due), f"it is unknown whether the Event on {place} was written"
        )

    def _idle_seconds(
        self,
        latest: Snapshot | None,  # noqa: ARG002 -- Events of older snapshots may wait
    ) -> float | None:
        now = self._ctx.clock.now()
        left = self._queue.seconds_left(now, self._repeat, self._options.per_minute)
        times = [seconds for seconds in (self._next_due_s, left) if seconds is not None]
        return min(times, default=None)

    async def _write(self, subject: EventSubject, pending: PendingEvent) -> None:
        queue = self._queue
        try:
            done = await self._writer.write(self._api, subject, pending)
        except (TransientError, asyncio.CancelledError):
            # Perhaps only this Event fails, or is slow.
            queue.record_failed(pending, self._ctx.clock.now())
            raise
        now = self._ctx.clock.now()
        if isinstance(done, str):
            self._writer.count(done, queue.record_refused(pending, now))
        else:
            queue.record_written(pending, done, now)
