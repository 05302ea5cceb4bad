"""The nri source: says which containers run and what they were given, as it happens."""

import asyncio
import contextlib
from functools import partial
from typing import Final

from pipeline.base.clock import WallTimes
from pipeline.base.errors import TransientError
from pipeline.component.accepted_annotations import Accepted
from pipeline.component.contracts import SourceContext
from sources.nri.connection import Link
from sources.nri.container_table import Roster
from sources.nri.event_builder import Teller
from sources.nri.koordinator_injection import from_koordinator
from sources.nri.options import Options
from sources.nri.plugin import Identity, Plugin, Send
from sources.nri.reconnect import Losses
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
        moments = ctx.kept.setdefault(_MOMENTS, WallTimes(ctx.clock.now))
        losses = ctx.kept.setdefault(_LOSSES, Losses())
        assert isinstance(moments, WallTimes)  # noqa: S101 - nobody else writes them
        assert isinstance(losses, Losses)  # noqa: S101
        roster = Roster(moments)
        teller = Teller(ctx, self._options.max_age)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(news.set)

        def plugin(send: Send) -> Plugin:
            return self._plugin(roster, send, ctx.accepted)

        link = Link(self._options.socket, plugin, ctx.clock, wake)
        confirming = asyncio.create_task(_confirm(ctx, teller, news))
        link.start()
        try:
            with Watchdog(link):
                over = False
                while not over:
                    await news.wait()
                    news.clear()
                    # Asked first, so that what was heard before the end is told.
                    over = bool(link.lost)
                    await teller.tell(roster.take(), link.plugin.runtime)
                    if link.plugin.synchronized:
                        losses.synchronized()
        finally:
            confirming.cancel()
            link.shut("podgpu closed it")
        raise self._failure(link, losses)

    def _plugin(self, roster: Roster, send: Send, accepted: Accepted) -> Plugin:
        injecting = self._options.inject == "koordinator"
        inject = partial(from_koordinator, accepted) if injecting else None
        return Plugin(Identity(self._options.name, self._options.index), roster, send, inject)

    def _failure(self, link: Link, losses: Losses) -> BaseException:
        if link.error is not None:
            return link.error
        reason, pause = f"{self._options.socket}: {link.lost}", None
        if link.plugin.configured and not link.plugin.synchronized:
            pause = losses.lost()
        if pause is not None:
            reason += (
                f", {losses.count} times in a row; the runtime may not bear it, so that it is left "
                f"alone for {pause / 60:.0f} min; the other sources go on"
            )
        return TransientError(reason, retry_after=pause)


async def _confirm(ctx: SourceContext, teller: Teller, news: asyncio.Event) -> None:
    while True:
        await ctx.clock.sleep(_CONFIRMED)
        teller.due = True
        news.set()
