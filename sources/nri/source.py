"""The source `nri`: reports which containers run and which GPUs they were given, immediately."""

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Final

from config.value_types import Duration
from pipeline.base.clock import WallTimes
from pipeline.base.errors import TransientError
from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.component.contracts import SourceContext
from pipeline.model import (
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    RunningContainer,
)
from sources.nri.connection import Connection
from sources.nri.container_table import ContainerChanges, ContainerTable
from sources.nri.koordinator_adjustment import koordinator_adjustment
from sources.nri.options import Options
from sources.nri.plugin import Identity, Plugin, Send
from sources.nri.watchdog import Watchdog

_CONFIRM_SECONDS: Final = 30.0
"""Seconds between two confirmations of the containers."""

_MAX_LOSSES: Final = 3
_FIRST_PAUSE: Final = 300.0
_MAX_PAUSE: Final = 3600.0
"""Seconds without a connection after so many losses in a row."""

_MOMENTS: Final = "moments"
_LOSSES: Final = "losses"


class EventEmitter:
    """Emits the changes of one connection as events.

    Attributes:
        due: whether the full list has to be emitted again as a confirmation.

    Args:
        ctx: the source's context.
        max_age: how long the emitted events stay valid.
    """

    def __init__(self, ctx: SourceContext, max_age: Duration) -> None:
        self.due = False
        self._ctx = ctx
        self._max_age = max_age
        self._running: dict[str, RunningContainer] | None = None
        self._full_list: tuple[RunningContainer, ...] | None = None

    async def emit(self, changes: ContainerChanges, runtime: str) -> None:
        """Log the warnings and emit the changes, in their order.

        Args:
            changes: the changes.
            runtime: name and version of the runtime.
        """
        for text in changes.warnings:
            self._ctx.log.warning("%s", text)
        if changes.full_list is not None:
            self._running = {one.subject.container_id: one for one in changes.full_list}
            self._full_list = changes.full_list
            self._ctx.log.info(
                "connected to %s; it runs %d containers",
                runtime,
                len(changes.full_list),
            )
            self.due = True
        if self.due:
            await self._confirm()
        running = self._running
        if running is None:  # there are no changes before the full list
            return
        for key, container in changes.changes.items():
            self._full_list = None
            if container is None:
                running.pop(key, None)
                await self._ctx.emit(ContainerStopped(key))
            else:
                running[key] = container
                await self._ctx.emit(ContainerStarted(container))

    async def _confirm(self) -> None:
        self.due = False
        if self._running is None:
            return
        if self._full_list is None:
            self._full_list = tuple(self._running.values())
        await self._ctx.emit(ContainersReplaced(self._full_list, self._max_age.ns))


@dataclass(slots=True)
class ReconnectBackoff:
    """Counts consecutive connections that were lost while the runtime listed its containers.

    Listing all containers for a plugin can make a runtime fail: with a few very large containers,
    some releases crash, and would crash again at each connection.
    """

    count: int = 0

    def record_loss(self) -> float | None:
        """Count a loss; return the seconds to wait before reconnecting, None for the default."""
        self.count += 1
        beyond = self.count - _MAX_LOSSES
        return min(_FIRST_PAUSE * 2 ** min(beyond, 10), _MAX_PAUSE) if beyond >= 0 else None

    def reset(self) -> None:
        """Reset the count after a successful synchronization."""
        self.count = 0


class NriSource:
    """Registers with the container runtime, and reports each container that starts or ends.

    Implements `pipeline.component.contracts.Source`. A run ends when the connection is lost; the
    next run gets a complete list again.
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
        container_table = ContainerTable(moments)
        emitter = EventEmitter(ctx, self._options.max_age)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

        def make_plugin(send: Send) -> Plugin:
            return self._plugin(container_table, send, ctx.accepted)

        connection = Connection(self._options.socket, make_plugin, ctx.clock, wake)
        confirming = asyncio.create_task(_confirm(ctx, emitter, changed))
        connection.start()
        try:
            with Watchdog(connection):
                ended = False
                while not ended:
                    await changed.wait()
                    changed.clear()
                    # Read this first, so that what was received before the end is emitted.
                    ended = bool(connection.lost_reason)
                    await emitter.emit(container_table.take_changes(), connection.plugin.runtime)
                    if connection.plugin.synchronized:
                        losses.reset()
        finally:
            confirming.cancel()
            connection.close("podgpu closed it")
        raise self._failure_of(connection, losses)

    def _plugin(
        self, container_table: ContainerTable, send: Send, accepted: AcceptedAnnotations
    ) -> Plugin:
        injecting = self._options.inject == "koordinator"
        inject = partial(koordinator_adjustment, accepted) if injecting else None
        return Plugin(
            Identity(self._options.name, self._options.index), container_table, send, inject
        )

    def _failure_of(self, connection: Connection, backoff: ReconnectBackoff) -> BaseException:
        if connection.error is not None:
            return connection.error
        reason, pause = f"{self._options.socket}: {connection.lost_reason}", None
        if connection.plugin.configured and not connection.plugin.synchronized:
            pause = backoff.record_loss()
        if pause is not None:
            reason += (
                f", {backoff.count} times in a row; the runtime may fail because of it, so podgpu "
                f"waits {pause / 60:.0f} min before it reconnects; the other sources continue"
            )
        return TransientError(reason, retry_after=pause)


async def _confirm(ctx: SourceContext, emitter: EventEmitter, changed: asyncio.Event) -> None:
    while True:
        await ctx.clock.sleep(_CONFIRM_SECONDS)
        emitter.due = True
        changed.set()
