"""Takes records from the queue, sends them, and settles them by their outcome."""

import asyncio
from collections.abc import Sequence
from typing import Final

from pipeline.base.errors import ComponentError, TransientError
from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import ends_within
from pipeline.delivery.contract import Acked, PushSink, Record, Rejected, Retry, TooLarge
from pipeline.delivery.metrics import PARTIAL, TOO_LARGE, DeliveryMetrics
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.delivery.queue_thread import ThreadedQueue
from pipeline.delivery.rate_limits import LogThrottle, MessageSizeLimit, RateLimiter, RetryBackoff
from pipeline.model import NS

_DELIVERING: Final = "podgpu_sink_delivering"

NOT_READY = "not_ready"
"""Reason of retries: the sink could not acquire what sending needs."""


class Sender:
    """Sends one message at a time, oldest data first, and retries it until its outcome is final.

    What the sender has learned about the receiver's limits remains for the next run.

    Attributes:
        stopping: the caller sets it when nothing more is appended. Then `run` sends what waits, and
            returns.
        work_available: the caller sets it when records were appended, or with `stopping`.

    Args:
        push: sends messages.
        ctx: logger, metrics and clock of the sink.
        reporter: reports delivery in podgpu's own metrics.
        options: options of the queue.
        retry: how long to wait before a retry.
        most_bytes: maximum size of a message in bytes.
    """

    def __init__(
        self,
        push: PushSink,
        ctx: SinkContext,
        reporter: DeliveryMetrics,
        *,
        options: QueueOptions,
        retry: RetryOptions,
        most_bytes: int,
    ) -> None:
        self._push = push
        self._ctx = ctx
        self._reporter = reporter
        # Records on disk that can't be sent before the stop are sent after the next start.
        self._persistent = options.path is not None
        self._backoff = RetryBackoff(retry)
        self._size_limit = MessageSizeLimit(most_bytes)
        self._rate_limiter = RateLimiter(int(options.max_rate))
        self._throttle = LogThrottle(ctx.log, ctx.clock)
        self._queue: ThreadedQueue
        self.stopping = asyncio.Event()
        self.work_available = asyncio.Event()
        self._has_backlog = self._ready = False
        self._repeat_bytes: int | None = None
        self._not_ready_error: TransientError | None = None
        self._outage_since_ns: int | None = None
        self._outage_reason = ""
        self._outage_logged = False

    async def enter(self) -> None:
        """Acquire what sending needs. After a transient error, `run` tries again.

        Raises:
            PermanentError: not possible with this configuration.
        """
        self._not_ready_error = None
        try:
            await self._push.__aenter__()
            self._ready = True
        except TransientError as error:
            self._not_ready_error = error

    async def leave(self) -> None:
        """Release what `enter` or `run` has acquired."""
        if self._ready:
            self._ready = False
            await self._push.__aexit__(None, None, None)

    async def run(self, queue: ThreadedQueue) -> None:
        """Send until the sink stops and everything is sent, or the rest can't be sent now.

        Args:
            queue: the records to send.
        """
        self._queue = queue
        self.stopping.clear()
        self._has_backlog = self._reporter.queued > 0
        self._repeat_bytes = self._outage_since_ns = None
        error, self._not_ready_error = self._not_ready_error, None
        if error is not None and not await self._wait_until_ready(error):
            return
        while True:
            if not self._ready:
                try:
                    await self._push.__aenter__()
                except ComponentError as failure:
                    if not await self._wait_until_ready(failure):
                        return
                    continue
                self._ready = True
            await self._limit_rate()
            last = self.stopping.is_set()
            self.work_available.clear()
            if records := await self._queue.take(self._max_bytes()):
                if not await self._send(records):
                    return
            elif last:
                return
            else:
                self._has_backlog = False
                if not self.stopping.is_set():
                    await self.work_available.wait()

    def _max_bytes(self) -> int:
        if self._repeat_bytes is not None:
            # The same bytes as before, so that a receiver that has them can recognize a duplicate.
            return self._repeat_bytes
        if self._has_backlog and self._rate_limiter.rate:
            return min(self._size_limit.bytes, self._rate_limiter.rate)
        return self._size_limit.bytes

    async def _limit_rate(self) -> None:
        """While there is a backlog, wait until the rate limit allows the next message."""
        while self._has_backlog and (self._persistent or not self.stopping.is_set()):
            seconds = self._rate_limiter.delay(self._ctx.clock.now().mono_ns)
            if not seconds:
                return
            if self.stopping.is_set():
                await self._ctx.clock.sleep(seconds)
            else:
                await ends_within(self._ctx.clock, seconds, self.stopping.wait())

    async def _send(self, records: Sequence[Record]) -> bool:
        """Send one message and handle its outcome; return whether to continue."""
        size, points = _size(records), sum(record.points for record in records)
        if len(records) == 1 and size > self._size_limit.most:
            await self._on_rejected(
                records,
                Rejected(
                    TOO_LARGE,
                    f"one record has {size} bytes, but a message may have at most "
                    f"{self._size_limit.most}",
                ),
            )
            return True
        if self._has_backlog:
            self._rate_limiter.spend(size)
        outcome = await self._push.send(records)
        match outcome:
            case Acked():
                self._on_response(size)
                self._report_delivering(records, accepted=True)
                await self._on_acked(len(records), points, outcome)
            case Rejected():
                self._on_response(size)
                self._report_delivering(records, accepted=False)
                await self._on_rejected(records, outcome)
            case Retry():
                return await self._on_retry(records, outcome)
            case TooLarge():
                await self._on_too_large(records, outcome)
        return True

    def _report_delivering(self, records: Sequence[Record], *, accepted: bool) -> None:
        if not records[0].signal:  # other signals don't show whether the main one is delivered
            self._ctx.meter.set(_DELIVERING, int(accepted))

    def _on_response(self, size: int) -> None:
        self._repeat_bytes = None
        self._report_recovery()
        self._backoff.reset()
        self._size_limit.on_accepted(size)

    async def _on_acked(self, count: int, points: int, outcome: Acked) -> None:
        rejected = min(max(outcome.rejected, 0), points)
        if rejected:
            why = outcome.message or "the receiver gives no reason"
            problem = f"the receiver permanently rejected a part of the points: {why}"
            self._ctx.meter.set_problem(problem, self._ctx.clock.now())
            self._throttle.warn(PARTIAL, "%s; %d of %d points are lost", problem, rejected, points)
        elif outcome.message:
            self._throttle.warn("message", "the receiver warns: %s", outcome.message)
        by_reason = {PARTIAL: rejected} if rejected else None
        await self._queue.settle(count, acked=points - rejected, rejected=by_reason)

    async def _on_rejected(self, records: Sequence[Record], outcome: Rejected) -> None:
        points = sum(record.points for record in records)
        if not outcome.already_logged:
            self._ctx.meter.set_problem(outcome.message, self._ctx.clock.now())
            self._throttle.warn(
                f"rejected: {outcome.reason}", "%s; %d points are lost", outcome.message, points
            )
        await self._queue.settle(len(records), rejected={outcome.reason: points})

    async def _on_too_large(self, records: Sequence[Record], outcome: TooLarge) -> None:
        self._repeat_bytes = None
        if len(records) == 1:
            await self._on_rejected(records, Rejected(TOO_LARGE, outcome.message))
            return
        self._ctx.log.debug("%s; the message is split in two and sent again", outcome.message)
        self._size_limit.reduce(_size(records[: len(records) // 2]))
        await self._queue.release()

    async def _on_retry(self, records: Sequence[Record], outcome: Retry) -> bool:
        self._ctx.meter.add("podgpu_sink_retries_total", reason=outcome.reason)
        accepted_records, rest = records[: outcome.accepted], records[outcome.accepted :]
        if accepted_records:
            await self._queue.settle(
                len(accepted_records), acked=sum(record.points for record in accepted_records)
            )
        await self._queue.release()
        self._repeat_bytes = _size(rest) if rest else None
        return await self._wait_to_retry(outcome) or await self._drop_blocking_signal(outcome)

    async def _drop_blocking_signal(self, outcome: Retry) -> bool:
        """When stopping, reject records of another signal that block records of signal 0.

        Only if the queue is in memory, where the records would be lost anyway. Records on disk are
        sent after the next start.

        Returns:
            Whether to continue to send.
        """
        if self._persistent or not (records := await self._queue.take(self._max_bytes())):
            return False
        if not records[0].signal:
            await self._queue.release()
            return False
        self._repeat_bytes = None
        await self._on_rejected(records, Rejected(outcome.reason, outcome.message))
        return True

    async def _wait_until_ready(self, error: ComponentError) -> bool:
        after = error.retry_after if isinstance(error, TransientError) else None
        return await self._wait_to_retry(Retry(NOT_READY, str(error), after))

    async def _wait_to_retry(self, retry: Retry) -> bool:
        """Wait before a retry; return whether to retry, since the sink may have to stop."""
        self._has_backlog = True
        self._report_failure(retry)
        if self.stopping.is_set():
            return False
        seconds = self._backoff.next_delay(retry.after)
        # One last attempt when the sink stops, unless the receiver requested a wait.
        ended = await ends_within(self._ctx.clock, seconds, self.stopping.wait())
        return not ended or retry.after is None

    def _report_failure(self, retry: Retry) -> None:
        """Report a failure; log it if an outage starts or its reason changes."""
        self._ctx.meter.set(_DELIVERING, 0)
        self._ctx.meter.set_problem(retry.message, self._ctx.clock.now())
        if self._outage_since_ns is None:
            self._outage_since_ns = self._ctx.clock.now().mono_ns
            self._outage_reason, self._outage_logged = "", False
        text = "%s; data is queued and will be sent again"
        if retry.reason != self._outage_reason:
            self._outage_reason = retry.reason
            self._outage_logged |= self._throttle.warn(
                f"again: {retry.reason}", text, retry.message
            )
        else:
            self._ctx.log.debug(text, retry.message)

    def _report_recovery(self) -> None:
        """End an outage: log that the receiver responds again, and how many points are queued."""
        since_ns, self._outage_since_ns = self._outage_since_ns, None
        if since_ns is not None and self._outage_logged:
            self._ctx.log.info(
                "the receiver responds again after %.0f s; %d points are queued",
                (self._ctx.clock.now().mono_ns - since_ns) / NS,
                self._reporter.queued,
            )


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.data) for record in records)
