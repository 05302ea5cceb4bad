"""The hostengine source: profiling fields of cards that NVML can't give them of."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.fields import FieldPlan
from pipeline.model import DevicesDiscovered, Instant, SamplesTaken
from sources.hostengine.call_thread import Caller
from sources.hostengine.engine import Engine, Round
from sources.hostengine.library import (
    GONE,
    NO_LIBRARY,
    VERSION_MISMATCH,
    DcgmError,
    Session,
    library,
)
from sources.hostengine.options import Options

_Read: TypeAlias = Callable[[Instant, int], Round | None]

_SEARCH_AGAIN: Final = 60.0
_GRACE: Final = 1.0
"""Seconds that the library may go beyond the time it was given for connecting."""


class HostEngineSource:
    """Asks the engine again and again. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logged: set[str] = set()

    async def run(self, ctx: SourceContext) -> None:
        """Connect, watch, read and emit until cancelled.

        Raises:
            TransientError: there is no library or no engine, or it doesn't answer.
        """
        caller, work = Caller.of(ctx.restart_state), _Work(self._options, ctx.plan)
        try:
            await self._ask(ctx, caller, work)
        except DcgmError as error:
            raise self._failure(error) from error
        finally:
            caller.leave(work.close)

    async def _ask(self, ctx: SourceContext, caller: Caller, work: "_Work") -> None:
        options = self._options
        timeout, good_for_ns = float(options.timeout), 3 * options.interval.ns
        where = f"the host engine at {options.address}"
        while True:
            await caller.call(f"connecting to {where}", timeout + _GRACE, work.connect)
            engine = await caller.call(f"setting up {where}", timeout, work.watch)
            self._log_start(ctx, engine)
            await ctx.emit(DevicesDiscovered(engine.devices))
            # Looked at just now: whatever the engine says, one is never set up without being read.
            read: _Read = engine.read
            while True:
                at = ctx.clock.now()
                reading = partial(read, at, good_for_ns)
                done = await caller.call(f"reading from {where}", timeout, reading)
                read = engine.read_again
                if done is None:
                    break
                await ctx.emit(SamplesTaken(tuple(done.readings)))
                self._log_dropped(ctx, done)
                rest = float(options.interval) - at.seconds_until(ctx.clock.now())
                await ctx.clock.sleep(max(0.0, rest))

    def _log_start(self, ctx: SourceContext, engine: Engine) -> None:
        for uuid, reason in engine.unwatched.items():
            self._warn(ctx, f"{self._options.address}: no profiling fields of {uuid}: {reason}")
        if engine.reads_nothing:
            reason = next(iter(engine.unwatched.values()))
            raise TransientError(f"{self._options.address}: no GPU can be read: {reason}")
        if engine.idle:
            ctx.log.info("there is nothing to ask for: NVML gives these cards' fields")

    def _log_dropped(self, ctx: SourceContext, done: Round) -> None:
        for reason, count in done.dropped.items():
            ctx.meter.add("podgpu_source_dropped_total", count, reason=reason)
        for uuid, error in done.faults.items():
            ctx.meter.add("podgpu_sample_errors_total", device=uuid, error=f"dcgm {error.code}")
            self._warn(ctx, f"{self._options.address}: {uuid}: {error}")

    def _warn(self, ctx: SourceContext, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            ctx.log.warning("%s", text)

    def _failure(self, error: DcgmError) -> TransientError:
        if error.code == NO_LIBRARY:
            return TransientError(
                f"no client library of DCGM: {error}; install libdcgm or give library, or read "
                "a dcgm-exporter by a source of kind dcgm; Hopper and newer cards need neither",
                retry_after=_SEARCH_AGAIN,
            )
        where = self._options.address
        if error.code == VERSION_MISMATCH:
            return TransientError(
                f"{where}: {error}; see that the client library and the host engine are both "
                "DCGM 3 or both DCGM 4",
                retry_after=_SEARCH_AGAIN,
            )
        return TransientError(
            f"{where}: {error}; see that nv-hostengine runs and is reachable there"
        )


class _Work:
    """The connection, which is opened and closed on the thread alone."""

    def __init__(self, options: Options, plan: FieldPlan) -> None:
        self._options = options
        self._plan = plan
        self._session: Session | None = None

    def connect(self) -> None:
        """Connect anew."""
        self.close()
        options = self._options
        self._session = Session(
            library(options.library),
            options.socket or options.address,
            is_socket=bool(options.socket),
            timeout=float(options.timeout),
        )

    def watch(self) -> Engine:
        """Look which devices there are, and have them read."""
        if self._session is None:
            raise DcgmError("not connected", GONE)
        options = self._options
        all_cards = options.fields == "all"
        return Engine(self._session, self._plan, float(options.interval), all_cards=all_cards)

    def close(self) -> None:
        """End the connection, if there is one."""
        session, self._session = self._session, None
        if session is not None:
            # An engine that is gone can't say goodbye.
            with suppress(DcgmError):
                session.close()
