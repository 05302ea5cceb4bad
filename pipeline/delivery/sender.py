"""Takes records out of the queue, sends them, and settles what became of them."""

import asyncio
from collections.abc import Sequence

from pipeline.base.errors import ComponentError, TransientError
from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import wait_or_stop
from pipeline.delivery.contract import Acked, PushSink, Record, Rejected, Retry, TooLarge
from pipeline.delivery.log_throttle import LogThrottle
from pipeline.delivery.metrics import PARTIAL, TOO_LARGE, DeliveryMetrics
from pipeline.delivery.outage_log import Outage
from pipeline.delivery.queue_thread import ThreadedQueue
from pipeline.delivery.rate_limits import MessageSizeLimit, RateLimiter, RetryBackoff

NOT_READY = "not_ready"
"""Why data has to wait while what sending needs can't be had."""


class StopSignal:
    """Says that a sink has to stop, and that there is something to send.

    Attributes:
        stopping: set when nothing more is appended.
        work_available: set when something was appended, or `stopping` was set.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.work_available = asyncio.Event()

    def set(self) -> None:
        """Let the sender send what waits, and return."""
        self.stopping.set()
        self.work_available.set()


class Sender:
    """Sends one message after the other, the oldest data first, each until something became of it.

    Args:
        push: sends.
        queue: what is to be sent.
        ctx: whose log, and whose clock.
        reporter: tells the rest in podgpu's own metrics.
        backoff: how long to wait before data is sent again.
        size_limit: the largest message.
        rate_limiter: how much is sent in a second while there is a backlog.
        stop_signal: when to stop.
        has_backlog: there is a backlog from the start.
        persistent: what can't be sent before the end is sent in the next life; else it has to
            hurry.
        not_ready: why `push` could not be entered so far; None if it was.

    Attributes:
        ready: whether `push` was entered.
    """

    def __init__(
        self,
        push: PushSink,
        queue: ThreadedQueue,
        ctx: SinkContext,
        reporter: DeliveryMetrics,
        *,
        backoff: RetryBackoff,
        size_limit: MessageSizeLimit,
        rate_limiter: RateLimiter,
        stop_signal: StopSignal,
        has_backlog: bool,
        persistent: bool,
        not_ready: TransientError | None = None,
    ) -> None:
        self._push = push
        self._queue = queue
        self._ctx = ctx
        self._reporter = reporter
        self._backoff = backoff
        self._size_limit = size_limit
        self._rate_limiter = rate_limiter
        self._stop_signal = stop_signal
        self._has_backlog = has_backlog
        self._persistent = persistent
        self._throttle = LogThrottle(ctx.log, ctx.clock)
        self._outage = Outage(ctx, reporter, self._throttle)
        self._again: int | None = None
        self._begin = not_ready
        self.ready = not_ready is None

    async def run(self) -> None:
        """Send until the end has come and all is sent, or can't be sent before it."""
        if self._begin is not None and not await self._not_ready(self._begin):
            return
        while True:
            if not self.ready:
                try:
                    await self._push.__aenter__()
                except ComponentError as error:
                    if not await self._not_ready(error):
                        return
                    continue
                self.ready = True
            await self._keep_pace()
            last = self._stop_signal.stopping.is_set()
            self._stop_signal.work_available.clear()
            if records := await self._queue.take(self._most()):
                if not await self._send(records):
                    return
            elif last:
                return
            else:
                self._has_backlog = False
                if not self._stop_signal.stopping.is_set():
                    await self._stop_signal.work_available.wait()

    def _most(self) -> int:
        if self._again is not None:
            # The same message as before, to the byte, so that who has it already may know it.
            return self._again
        if self._has_backlog and self._rate_limiter.rate:
            return min(self._size_limit.bytes, self._rate_limiter.rate)
        return self._size_limit.bytes

    async def _keep_pace(self) -> None:
        """While there is a backlog, wait until the next message may be sent."""
        while self._has_backlog and not (
            self._stop_signal.stopping.is_set() and not self._persistent
        ):
            seconds = self._rate_limiter.delay(self._ctx.clock.now().mono_ns)
            if not seconds:
                return
            if self._stop_signal.stopping.is_set():
                await self._ctx.clock.sleep(seconds)
            else:
                await wait_or_stop(self._ctx.clock, seconds, self._stop_signal.stopping)

    async def _send(self, records: Sequence[Record]) -> bool:
        """Send one message and see to what becomes of it; whether to go on."""
        size, points = _size(records), sum(record.points for record in records)
        if len(records) == 1 and size > self._size_limit.most:
            await self._refused(
                records,
                Rejected(
                    TOO_LARGE,
                    f"a single record takes {size} bytes, and {self._size_limit.most} may",
                ),
            )
            return True
        if self._has_backlog:
            self._rate_limiter.spend(size)
        outcome = await self._push.send(records)
        match outcome:
            case Acked():
                self._answered(size)
                self._delivers(records, well=True)
                await self._acked(len(records), points, outcome)
            case Rejected():
                self._answered(size)
                self._delivers(records, well=False)
                await self._refused(records, outcome)
            case Retry():
                return await self._retry(records, outcome)
            case TooLarge():
                await self._too_large(records, outcome)
        return True

    def _delivers(self, records: Sequence[Record], *, well: bool) -> None:
        if not records[0].signal:  # what comes beside it says nothing of that
            self._reporter.set_delivering(well)

    def _answered(self, size: int) -> None:
        self._again = None
        self._outage.report_recovery()
        self._backoff.reset()
        self._size_limit.on_accepted(size)

    async def _acked(self, count: int, points: int, outcome: Acked) -> None:
        rejected = min(max(outcome.rejected, 0), points)
        if rejected:
            why = outcome.message or "it doesn't say why"
            told = f"the receiver refuses a part of the points for good: {why}"
            self._ctx.meter.set_problem(told, self._ctx.clock.now())
            self._throttle.warn(PARTIAL, "%s; %d of %d points are lost", told, rejected, points)
        elif outcome.message:
            self._throttle.warn("message", "the receiver warns: %s", outcome.message)
        refused = {PARTIAL: rejected} if rejected else None
        await self._queue.settle(count, acked=points - rejected, rejected=refused)

    async def _refused(self, records: Sequence[Record], outcome: Rejected) -> None:
        points = sum(record.points for record in records)
        if not outcome.already_logged:
            self._ctx.meter.set_problem(outcome.message, self._ctx.clock.now())
            self._throttle.warn(
                f"rejected: {outcome.reason}", "%s; %d points are lost", outcome.message, points
            )
        await self._queue.settle(len(records), rejected={outcome.reason: points})

    async def _too_large(self, records: Sequence[Record], outcome: TooLarge) -> None:
        self._again = None
        if len(records) == 1:
            await self._refused(records, Rejected(TOO_LARGE, outcome.message))
            return
        self._ctx.log.debug("%s; sent in halves", outcome.message)
        self._size_limit.reduce(_size(records[: len(records) // 2]))
        await self._queue.release()

    async def _retry(self, records: Sequence[Record], outcome: Retry) -> bool:
        self._reporter.count_retry(outcome.reason)
        taken, rest = records[: outcome.accepted], records[outcome.accepted :]
        if taken:
            await self._queue.settle(len(taken), acked=sum(record.points for record in taken))
        await self._queue.release()
        self._again = _size(rest) if rest else None
        return await self._wait(outcome) or await self._left_out(outcome)

    async def _left_out(self, outcome: Retry) -> bool:
        """Do at the end without what comes beside, if it holds up what a sink is there for.

        It is lost with the memory in any case; what waits on the disk goes in the next life.
        """
        if self._persistent or not (records := await self._queue.take(self._most())):
            return False
        if not records[0].signal:
            await self._queue.release()
            return False
        self._again = None
        await self._refused(records, Rejected(outcome.reason, outcome.message))
        return True

    async def _not_ready(self, error: ComponentError) -> bool:
        after = error.retry_after if isinstance(error, TransientError) else None
        return await self._wait(Retry(NOT_READY, str(error), after))

    async def _wait(self, retry: Retry) -> bool:
        """Wait before it is tried again; whether it is, now that the end may have come."""
        self._has_backlog = True
        self._outage.report_failure(retry)
        if self._stop_signal.stopping.is_set():
            return False
        seconds = self._backoff.next_delay(retry.after)
        # A last attempt, unless the receiver wants to be left alone.
        ended = await wait_or_stop(self._ctx.clock, seconds, self._stop_signal.stopping)
        return not ended or retry.after is None


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.data) for record in records)
