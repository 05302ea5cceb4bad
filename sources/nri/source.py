"""The nri source: says which containers run and what they were given, as it happens."""

import asyncio
import contextlib
from functools import partial
from typing import Final

from pipeline.base.clock import WallTimes
from pipeline.base.errors import TransientError
from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.component.contracts import SourceContext
from sources.nri.connection import Connection
from sources.nri.container_table import ContainerTable
from sources.nri.event_builder import EventEmitter
from sources.nri.koordinator_injection import koordinator_adjustment
from sources.nri.options import Options
from sources.nri.plugin import Identity, Plugin, Send
from sources.nri.reconnect import ReconnectBackoff
from sources.nri.watchdog import Watchdog

_CONFIRMED: Final = 30.0
"""Seconds between two times that the source stands by its word."""

_MOMENTS: Final = "moments"
_LOSSES: Final = "losses"


class NriSource:
    """Registers with the container runtime, and hears of each container that comes or goes.

    Implements `pipeline.component.contracts.Source`. A connection that is lost ends a run; the next
    one hears of everything anew.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Follow the runtime until cancelled.

        Raises:
            TransientError: the connection is lost, or can't be had.
        """
        # Kept over restarts, so that containers that did not change don't look as if they had.
        moments = ctx.restart_state.setdefault(_MOMENTS, WallTimes(ctx.clock.now))
        losses = ctx.restart_state.setdefault(_LOSSES, ReconnectBackoff())
        assert isinstance(moments, WallTimes)  # noqa: S101 - nobody else writes them
        assert isinstance(losses, ReconnectBackoff)  # noqa: S101
        roster = ContainerTable(moments)
        teller = EventEmitter(ctx, self._options.max_age)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(news.set)

        def plugin(send: Send) -> Plugin:
            return self._plugin(roster, send, ctx.accepted)

        link = Connection(self._options.socket, plugin, ctx.clock, wake)
        confirming = asyncio.create_task(_confirm(ctx, teller, news))
        link.start()
        try:
            with Watchdog(link):
                over = False
                while not over:
                    await news.wait()
                    news.clear()
                    # Asked first, so that what was heard before the end is told.
                    over = bool(link.lost_reason)
                    await teller.emit(roster.take_changes(), link.plugin.runtime)
                    if link.plugin.synchronized:
                        losses.reset()
        finally:
            confirming.cancel()
            link.close("podgpu closed it")
        raise self._failure_of(link, losses)

    def _plugin(
        self, container_table: ContainerTable, send: Send, accepted: AcceptedAnnotations
    ) -> Plugin:
        injecting = self._options.inject == "koordinator"
        inject = partial(koordinator_adjustment, accepted) if injecting else None
        return Plugin(
            Identity(self._options.name, self._options.index), container_table, send, inject
        )

    def _failure_of(self, link: Connection, backoff: ReconnectBackoff) -> BaseException:
        if link.error is not None:
            return link.error
        reason, pause = f"{self._options.socket}: {link.lost_reason}", None
        if link.plugin.configured and not link.plugin.synchronized:
            pause = backoff.record_loss()
        if pause is not None:
            reason += (
                f", {backoff.count} times in a row; the runtime may not bear it, so that it is "
                f"left alone for {pause / 60:.0f} min; the other sources go on"
            )
        return TransientError(reason, retry_after=pause)


async def _confirm(ctx: SourceContext, emitter: EventEmitter, news: asyncio.Event) -> None:
    while True:
        await ctx.clock.sleep(_CONFIRMED)
        emitter.due = True
        news.set()
