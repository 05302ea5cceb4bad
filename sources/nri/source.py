"""The source `nri`: reports which containers run and which GPUs they were given, immediately."""

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Final

from config.value_types import Duration
from pipeline.base.clock import WallTimes
from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import ContainersReplaced, ContainerStarted, ContainerStopped
from sources.nri.connection import Connection
from sources.nri.container_table import ContainerChanges, ContainerTable
from sources.nri.koordinator_adjustment import koordinator_adjustment
from sources.nri.options import Options
from sources.nri.plugin import Plugin, Send
from sources.nri.stall_watchdog import StallWatchdog

_CONFIRM_SECONDS: Final = 30.0
"""Seconds between two confirmations of the containers."""

_MAX_LOSSES: Final = 3
_FIRST_PAUSE: Final = 300.0
_MAX_PAUSE: Final = 3600.0
"""Seconds without a connection after `_MAX_LOSSES` losses in a row: the first and longest pause."""

_MOMENTS: Final = "moments"
_LOSSES: Final = "losses"


@dataclass(slots=True)
class ReconnectBackoff:
    """Counts consecutive connections that were lost while the runtime listed its containers.

    The source sets the count to 0 after the runtime has listed its containers completely.

    Listing all containers for a plugin can make a runtime fail: with a few very large containers,
    some releases crash, and crash again at each new connection.
    """

    count: int = 0

    def record_loss(self) -> float | None:
        """Count a loss; return the seconds to wait before reconnecting.

        None means the usual delay of the caller.
        """
        self.count += 1
        beyond = self.count - _MAX_LOSSES
        return min(_FIRST_PAUSE * 2 ** min(beyond, 10), _MAX_PAUSE) if beyond >= 0 else None


class NriSource:
    """Registers with the container runtime, and reports each container that starts or ends.

    Implements `pipeline.component.contracts.Source`. A run ends when the connection is lost. In the
    next run, the runtime lists all containers again.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Report containers until cancelled.

        Raises:
            TransientError: the connection was lost or cannot be established.
        """
        # Kept over restarts, so that unchanged containers keep the same instants.
        moments = ctx.restart_state.setdefault(_MOMENTS, WallTimes(ctx.clock.now))
        losses = ctx.restart_state.setdefault(_LOSSES, ReconnectBackoff())
        assert isinstance(moments, WallTimes)  # noqa: S101 - only this source writes them
        assert isinstance(losses, ReconnectBackoff)  # noqa: S101
        options, table = self._options, ContainerTable(moments)
        injecting = options.inject == "koordinator"
        inject = partial(koordinator_adjustment, ctx.accepted) if injecting else None
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

        def make_plugin(send: Send) -> Plugin:
            return Plugin(options, table, send, inject)

        connection = Connection(options.socket, make_plugin, ctx.clock, wake)
        confirming = asyncio.create_task(_confirm(ctx, table, changed))
        connection.start()
        try:
            with StallWatchdog(connection):
                connected = ended = False
                while not ended:
                    await changed.wait()
                    changed.clear()
                    # Read this first, so that what was received before the end is emitted.
                    ended = bool(connection.lost_reason)
                    changes = table.take_changes()
                    if changes.full_list is not None and not connected:
                        connected, count = True, len(changes.full_list)
                        text = "connected to %s; it runs %d containers"
                        ctx.log.info(text, connection.plugin.runtime, count)
                    await _emit(ctx, changes, options.max_age)
                    if connection.plugin.synchronized:
                        losses.count = 0
        finally:
            confirming.cancel()
            connection.close("podgpu closed the connection")
        raise self._failure_of(connection, losses)

    def _failure_of(self, connection: Connection, backoff: ReconnectBackoff) -> BaseException:
        if connection.error is not None:
            return connection.error
        reason, pause = f"{self._options.socket}: {connection.lost_reason}", None
        if connection.plugin.configured and not connection.plugin.synchronized:
            pause = backoff.record_loss()
        if pause is not None:
            reason += (
                f", {backoff.count} times in a row while the runtime listed its containers; this "
                f"may make the runtime fail, so podgpu waits {pause / 60:.0f} min before it "
                "reconnects; the other sources continue"
            )
        return TransientError(reason, retry_after=pause)


async def _emit(ctx: SourceContext, changes: ContainerChanges, max_age: Duration) -> None:
    """Log the warnings, emit the changes, and then emit the list if there is one."""
    for text in changes.warnings:
        ctx.log.warning("%s", text)
    for key, container in changes.changes.items():
        event = ContainerStopped(key) if container is None else ContainerStarted(container)
        await ctx.emit(event)
    if changes.full_list is not None:
        await ctx.emit(ContainersReplaced(changes.full_list, max_age.ns))


async def _confirm(ctx: SourceContext, table: ContainerTable, changed: asyncio.Event) -> None:
    while True:
        await ctx.clock.sleep(_CONFIRM_SECONDS)
        table.request_list()
        changed.set()
