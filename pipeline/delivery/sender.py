"""Takes records out of the queue, sends them, and settles what became of them."""

import asyncio
from collections.abc import Sequence

from pipeline.base.errors import ComponentError, TransientError
from pipeline.component.contracts import SinkContext
from pipeline.delivery.async_wait import pause
from pipeline.delivery.contract import Acked, PushSink, Record, Rejected, Retry, TooLarge
from pipeline.delivery.log_throttle import Seldom
from pipeline.delivery.metrics import PARTIAL, TOO_LARGE, Reporter
from pipeline.delivery.outage_log import Outage
from pipeline.delivery.queue_thread import ThreadedQueue
from pipeline.delivery.rate_limits import Limit, Pace, Waits

NOT_READY = "not_ready"
"""Why data has to wait while what sending needs can't be had."""


class Ending:
    """Says that a sink has to stop, and that there is something to send.

    Attributes:
        come: set when nothing more is appended.
        news: set when something was appended, or `come` was set.
    """

    def __init__(self) -> None:
        self.come = asyncio.Event()
        self.news = asyncio.Event()

    def set(self) -> None:
        """Let the sender send what waits, and return."""
        self.come.set()
        self.news.set()


class Sender:
    """Sends one message after the other, the oldest data first, each until something became of it.

    Args:
        push: sends.
        queue: what is to be sent.
        ctx: whose log, and whose clock.
        reporter: tells the rest in podgpu's own metrics.
        waits: how long to wait before data is sent again.
        limit: the largest message.
        pace: how much is sent in a second while there is a backlog.
        ending: when to stop.
        behind: there is a backlog from the start.
        lasting: what can't be sent before the end is sent in the next life; else it has to hurry.
        not_ready: why `push` could not be entered so far; None if it was.

    Attributes:
        ready: whether `push` was entered.
    """

    def __init__(
        self,
        push: PushSink,
        queue: ThreadedQueue,
        ctx: SinkContext,
        reporter: Reporter,
        *,
        waits: Waits,
        limit: Limit,
        pace: Pace,
        ending: Ending,
        behind: bool,
        lasting: bool,
        not_ready: TransientError | None = None,
    ) -> None:
        self._push = push
        self._queue = queue
        self._ctx = ctx
        self._reporter = reporter
        self._waits = waits
        self._limit = limit
        self._pace = pace
        self._ending = ending
        self._behind = behind
        self._lasting = lasting
        self._seldom = Seldom(ctx.log, ctx.clock)
        self._outage = Outage(ctx, reporter, self._seldom)
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
            last = self._ending.come.is_set()
            self._ending.news.clear()
            if records := await self._queue.take(self._most()):
                if not await self._send(records):
                    return
            elif last:
                return
            else:
                self._behind = False
                if not self._ending.come.is_set():
                    await self._ending.news.wait()

    def _most(self) -> int:
        if self._again is not None:
            # The same message as before, to the byte, so that who has it already may know it.
            return self._again
        if self._behind and self._pace.rate:
            return min(self._limit.bytes, self._pace.rate)
        return self._limit.bytes

    async def _keep_pace(self) -> None:
        """While there is a backlog, wait until the next message may be sent."""
        while self._behind and not (self._ending.come.is_set() and not self._lasting):
            seconds = self._pace.wait(self._ctx.clock.now().mono_ns)
            if not seconds:
                return
            if self._ending.come.is_set():
                await self._ctx.clock.sleep(seconds)
            else:
                await pause(self._ctx.clock, seconds, self._ending.come)

    async def _send(self, records: Sequence[Record]) -> bool:
        """Send one message and see to what becomes of it; whether to go on."""
        size, points = _size(records), sum(record.points for record in records)
        if len(records) == 1 and size > self._limit.most:
            await self._refused(
                records,
                Rejected(
                    TOO_LARGE, f"a single record takes {size} bytes, and {self._limit.most} may"
                ),
            )
            return True
        if self._behind:
            self._pace.spend(size)
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
            self._reporter.delivering(well)

    def _answered(self, size: int) -> None:
        self._again = None
        self._outage.ends()
        self._waits.reset()
        self._limit.taken(size)

    async def _acked(self, count: int, points: int, outcome: Acked) -> None:
        rejected = min(max(outcome.rejected, 0), points)
        if rejected:
            why = outcome.message or "it doesn't say why"
            told = f"the receiver refuses a part of the points for good: {why}"
            self._ctx.meter.trouble(told, self._ctx.clock.now())
            self._seldom.warn(PARTIAL, "%s; %d of %d points are lost", told, rejected, points)
        elif outcome.message:
            self._seldom.warn("message", "the receiver warns: %s", outcome.message)
        refused = {PARTIAL: rejected} if rejected else None
        await self._queue.settle(count, acked=points - rejected, rejected=refused)

    async def _refused(self, records: Sequence[Record], outcome: Rejected) -> None:
        points = sum(record.points for record in records)
        if not outcome.told:
            self._ctx.meter.trouble(outcome.message, self._ctx.clock.now())
            self._seldom.warn(
                f"rejected: {outcome.reason}", "%s; %d points are lost", outcome.message, points
            )
        await self._queue.settle(len(records), rejected={outcome.reason: points})

    async def _too_large(self, records: Sequence[Record], outcome: TooLarge) -> None:
        self._again = None
        if len(records) == 1:
            await self._refused(records, Rejected(TOO_LARGE, outcome.message))
            return
        self._ctx.log.debug("%s; sent in halves", outcome.message)
        self._limit.lower(_size(records[: len(records) // 2]))
        await self._queue.release()

    async def _retry(self, records: Sequence[Record], outcome: Retry) -> bool:
        self._reporter.retried(outcome.reason)
        taken, rest = records[: outcome.taken], records[outcome.taken :]
        if taken:
            await self._queue.settle(len(taken), acked=sum(record.points for record in taken))
        await self._queue.release()
        self._again = _size(rest) if rest else None
        return await self._wait(outcome) or await self._left_out(outcome)

    async def _left_out(self, outcome: Retry) -> bool:
        """Do at the end without what comes beside, if it holds up what a sink is there for.

        It is lost with the memory in any case; what waits on the disk goes in the next life.
        """
        if self._lasting or not (records := await self._queue.take(self._most())):
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
        self._behind = True
        self._outage.goes_on(retry)
        if self._ending.come.is_set():
            return False
        seconds = self._waits.next(retry.after)
        # A last attempt, unless the receiver wants to be left alone.
        ended = await pause(self._ctx.clock, seconds, self._ending.come)
        return not ended or retry.after is None


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.data) for record in records)
