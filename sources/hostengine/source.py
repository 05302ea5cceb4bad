"""The hostengine source: profiling fields of GPUs for which NVML does not provide them."""

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

_LONG_RETRY_SECONDS: Final = 60.0
_GRACE: Final = 1.0
"""Seconds by which the library may exceed its timeout for connecting."""


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
        caller, connection = Caller.of(ctx.restart_state), _Connection(self._options, ctx.plan)
        try:
            await self._read_until_cancelled(ctx, caller, connection)
        except DcgmError as error:
            raise self._failure(error) from error
        finally:
            caller.leave(connection.close)

    async def _read_until_cancelled(
        self, ctx: SourceContext, caller: Caller, connection: "_Connection"
    ) -> None:
        options = self._options
        timeout, good_for_ns = float(options.timeout), 3 * options.interval.ns
        engine_name = f"the host engine at {options.address}"
        while True:
            await caller.call(f"connecting to {engine_name}", timeout + _GRACE, connection.connect)
            engine = await caller.call(f"setting up {engine_name}", timeout, connection.watch)
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
        if engine.reads_nothing:
            reason = next(iter(engine.unwatched.values()))
            raise TransientError(f"{self._options.address}: cannot read any GPU: {reason}")
        if engine.idle:
            ctx.log.info("no fields to read from the host engine: NVML provides them")

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
                "use a source of kind dcgm with a dcgm-exporter; Hopper and newer need neither",
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


class _Connection:
    """The connection, which is only opened and closed on the thread."""

    def __init__(self, options: Options, plan: FieldPlan) -> None:
        self._options = options
        self._plan = plan
        self._session: Session | None = None

    def connect(self) -> None:
        """Open a new connection."""
        self.close()
        options = self._options
        self._session = Session(
            library(options.library),
            options.socket or options.address,
            is_socket=bool(options.socket),
            timeout=float(options.timeout),
        )

    def watch(self) -> Engine:
        """Enumerate the devices, and let the host engine read them."""
        if self._session is None:
            raise DcgmError("not connected", GONE)
        options = self._options
        all_gpus = options.fields == "all"
        return Engine(self._session, self._plan, float(options.interval), all_gpus=all_gpus)

    def close(self) -> None:
        """End the connection, if there is one."""
        session, self._session = self._session, None
        if session is not None:
            # A host engine that is gone makes this fail.
            with suppress(DcgmError):
                session.close()
