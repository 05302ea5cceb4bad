"""The hostengine source: profiling fields of GPUs for which NVML does not provide them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.component.restart_state import kept
from pipeline.host.daemon_threads import SingleCall
from pipeline.model import DevicesDiscovered, Instant, SamplesTaken
from sources.hostengine.engine import Engine, Round
from sources.hostengine.library import NO_LIBRARY, VERSION_MISMATCH, DcgmError, Session
from sources.hostengine.options import Options

T = TypeVar("T")

_Read: TypeAlias = Callable[[Instant, int], Round | None]

_LONG_RETRY_SECONDS: Final = 60.0
_GRACE: Final = 1.0
"""Seconds by which the library may exceed its timeout for connecting."""


class Caller:
    """Makes calls one after another, in one thread.

    A call that exceeds its deadline keeps the thread, and no other call starts until that call
    returns. The object outlives the runs of its source, since a call may hang.
    """

    def __init__(self) -> None:
        self._thread = SingleCall("podgpu-dcgm")
        self._description = ""

    async def call(self, description: str, timeout_s: float, call: Callable[[], T]) -> T:
        """Make a call and return its result.

        Args:
            description: what the call does, for messages.
            timeout_s: maximum duration in seconds.
            call: the call.

        Raises:
            TransientError: the call takes longer, or an earlier one still hangs.
            Exception: what the call raised.
        """
        if (running := self._thread.running) is not None:
            # The last call of an earlier run may still run.
            await asyncio.wait([running], timeout=timeout_s)
        if self._thread.running is not None:
            raise TransientError(
                f"{self._description} still hangs in DCGM's library; check the host engine; "
                "restart podgpu to end the call"
            )
        self._description = description
        try:
            return await self._thread.result(call, timeout_s)
        except TimeoutError:
            raise TransientError(
                f"{description} takes more than {timeout_s:g} s; check that the host engine works"
            ) from None

    def leave(self, last: Callable[[], None]) -> None:
        """Submit a last call without waiting for it; it runs after the call that still runs."""
        if self._thread.running is None:
            self._description = "closing the connection"
        self._thread.stop(last)


class HostEngineSource:
    """Reads the host engine at each interval. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logged: set[str] = set()

    async def run(self, ctx: SourceContext) -> None:
        """Connect, watch, read and emit until cancelled.

        Raises:
            TransientError: there is no library or no host engine, or it does not respond.
        """
        caller, session = kept(ctx.restart_state, Caller), Session(self._options)
        try:
            await self._read_until_cancelled(ctx, caller, session)
        except DcgmError as error:
            raise self._failure(error) from error
        finally:
            caller.leave(session.close)

    async def _read_until_cancelled(
        self, ctx: SourceContext, caller: Caller, session: Session
    ) -> None:
        options = self._options
        timeout, good_for_ns = float(options.timeout), 3 * options.interval.ns
        engine_name = f"the host engine at {options.address}"
        while True:
            await caller.call(f"connecting to {engine_name}", timeout + _GRACE, session.connect)
            watch = partial(Engine, session, ctx.plan, options)
            engine = await caller.call(f"setting up {engine_name}", timeout, watch)
            self._log_start(ctx, engine)
            await ctx.emit(DevicesDiscovered(engine.devices))
            # The first read does not enumerate again, so that each new setup reads at least once.
            read: _Read = engine.read
            while True:
                at = ctx.clock.now()
                reading = partial(read, at, good_for_ns)
                result = await caller.call(f"reading from {engine_name}", timeout, reading)
                read = engine.read_again
                if result is None:
                    break
                await ctx.emit(SamplesTaken(tuple(result.readings)))
                self._log_dropped(ctx, result)
                remaining_s = float(options.interval) - at.seconds_until(ctx.clock.now())
                await ctx.clock.sleep(max(0.0, remaining_s))

    def _log_start(self, ctx: SourceContext, engine: Engine) -> None:
        for uuid, reason in engine.unwatched.items():
            self._warn(ctx, f"{self._options.address}: cannot read {uuid}: {reason}")
        if engine.reads_any:
            return
        if engine.unwatched:
            reason = next(iter(engine.unwatched.values()))
            raise TransientError(f"{self._options.address}: cannot read any GPU: {reason}")
        ctx.log.info(
            "no field is read from the host engine: no profiling field is requested, or NVML can "
            "read the fields of all GPUs"
        )

    def _log_dropped(self, ctx: SourceContext, result: Round) -> None:
        for reason, count in result.dropped.items():
            ctx.meter.add("podgpu_source_dropped_total", count, reason=reason)
        for uuid, error in result.faults.items():
            ctx.meter.add("podgpu_sample_errors_total", device=uuid, error=f"dcgm {error.code}")
            self._warn(ctx, f"{self._options.address}: {uuid}: {error}")

    def _warn(self, ctx: SourceContext, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            ctx.log.warning("%s", text)

    def _failure(self, error: DcgmError) -> TransientError:
        if error.code == NO_LIBRARY:
            return TransientError(
                f"cannot load DCGM's client library: {error}; install libdcgm or set library, or "
                "use a source of kind dcgm with a dcgm-exporter; on Hopper and newer GPUs neither "
                "source is needed: the source nvml reads these fields",
                retry_after=_LONG_RETRY_SECONDS,
            )
        address = self._options.address
        if error.code == VERSION_MISMATCH:
            return TransientError(
                f"{address}: {error}; check that the client library and the host engine are "
                "both DCGM 3 or both DCGM 4",
                retry_after=_LONG_RETRY_SECONDS,
            )
        return TransientError(
            f"{address}: {error}; check that nv-hostengine runs and is reachable there"
        )
