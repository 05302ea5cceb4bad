"""Runs one component, and restarts it after errors.

After a `ComponentError`, podgpu logs and counts the error and runs the component again after a
growing delay. Any other exception ends the process, because a retry would hide a bug.
"""

import logging

from pipeline.base.backoff import Backoff
from pipeline.base.channels import Channel
from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.component.contracts import ComponentContext, Sink, SinkContext, Source
from pipeline.delivery.async_wait import ends_within
from pipeline.model import Instant, Snapshot, SourceLost
from pipeline.runtime.contexts import RunningComponent

_SLOW_RETRY = 60.0
"""Minimum of seconds before a retry after an error that only another configuration can fix."""


async def supervise_source(source: Source, ctx: RunningComponent, *, fatal: bool) -> None:
    """Run a source until it is finished or cancelled; run it again after errors.

    Args:
        source: the source to run.
        ctx: context of the source.
        fatal: podgpu has just started: raise a `PermanentError` that occurs in the first run,
            before the source's first event.

    Raises:
        PermanentError: see `fatal`.
    """
    failures = _Failures(ctx)
    ctx.meter.add("podgpu_source_restarts_total", 0)
    while True:
        started = ctx.clock.now()
        try:
            await source.run(ctx)
        except ComponentError as error:
            if fatal and not ctx.has_emitted and isinstance(error, PermanentError):
                raise
            reason, delay = str(error), failures.report(error, started)
        else:
            ctx.log.info("source finished: no more data to read")
            await ctx.emit(SourceLost("finished"))
            return
        fatal = False
        ctx.meter.add("podgpu_source_restarts_total")
        await ctx.emit(SourceLost(reason))
        await ctx.clock.sleep(delay)


class _Failures:
    """The failures of one component.

    Attributes:
        logged: text of the last failure. It is logged once as a warning, then at level debug,
            because a driver may be missing for days.
    """

    def __init__(self, ctx: ComponentContext) -> None:
        self.logged = ""
        self._ctx = ctx
        self._backoff = Backoff()

    def report(self, error: ComponentError, started: Instant) -> float:
        """Log and record a failed run; return the seconds until the next run."""
        now, reason = self._ctx.clock.now(), str(error)
        retry_after = error.retry_after if isinstance(error, TransientError) else _SLOW_RETRY
        delay = self._backoff.delay(started.seconds_until(now), retry_after)
        level = logging.WARNING if reason != self.logged else logging.DEBUG
        self._ctx.log.log(level, "%s; retrying, next attempt in %.0f s", reason, delay)
        self._ctx.meter.set_problem(reason, now)
        self.logged = reason
        return delay


class SinkRunner:
    """Enters and runs a sink; after errors, enters and runs it again.

    `enter` is separate from `run`, so that podgpu reports problems of sinks when it starts.

    Args:
        sink: the sink to run.
        ctx: context of the sink.
        outlet: queue of snapshots for the sink. When it is closed and empty, the sink flushes and
            ends.
    """

    def __init__(self, sink: Sink, ctx: SinkContext, outlet: Channel[Snapshot]) -> None:
        self.outlet = outlet
        self.sink = sink
        self._ctx = ctx
        self._entered = False
        self._failures = _Failures(ctx)

    async def enter(self) -> None:
        """Enter the sink. After a transient error, log it; `run` then enters the sink again.

        Raises:
            PermanentError: the sink cannot work with this configuration.
        """
        self._ctx.meter.add("podgpu_sink_dropped_total", 0, reason="queue_full")
        self._ctx.meter.set("podgpu_sink_up", 0)
        try:
            await self.sink.__aenter__()
        except TransientError as error:
            self._failures.logged = str(error)
            self._ctx.meter.set_problem(str(error), self._ctx.clock.now())
            self._ctx.log.warning("%s; retrying", error)
        else:
            self._mark_entered()

    async def run(self) -> None:
        """Run the sink until its outlet is closed and the sink has ended.

        If the outlet is closed during the delay after an error, return without another run.
        """
        while True:
            started = self._ctx.clock.now()
            try:
                if not self._entered:
                    await self.sink.__aenter__()
                    self._mark_entered()
                await self.sink.run(self.outlet)
            except ComponentError as error:
                failure = error
            else:
                return
            finally:
                await self.leave()
            delay = self._failures.report(failure, started)
            if await ends_within(self._ctx.clock, delay, self.outlet.wait_closed()):
                return

    def _mark_entered(self) -> None:
        self._entered, self._failures.logged = True, ""
        self._ctx.meter.set("podgpu_sink_up", 1)

    async def leave(self) -> None:
        """Exit the sink, if it was entered: it releases its resources."""
        if self._entered:
            self._entered = False
            self._ctx.meter.set("podgpu_sink_up", 0)
            await self.sink.__aexit__(None, None, None)
