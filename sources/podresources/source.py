"""The podresources source: says who holds which GPU, by the kubelet's own word."""

import asyncio
from collections.abc import Iterable

from pipeline.component.contracts import SourceContext
from pipeline.model.plugin_ids import glob_matcher
from sources.podresources.claim_report import KubeletReport
from sources.podresources.options import Options
from sources.podresources.responses import Selection
from sources.podresources.socket_client import SocketClient


class PodResourcesSource:
    """Asks each interval, and at once when another source's words hint at a change.

    Implements `pipeline.component.contracts.Source`. Faults of the sockets don't end it: the last
    answers stand, unconfirmed, until they are too old.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Ask until cancelled."""
        options = self._options
        sockets = tuple(dict.fromkeys(options.sockets))
        selection = Selection(glob_matcher(options.resources), glob_matcher(options.drivers))
        report = KubeletReport(ctx, sockets, options.max_age)
        lanes = [SocketClient(path, options, selection, ctx, report) for path in sockets]
        async with asyncio.TaskGroup() as tasks:
            for lane in lanes:
                tasks.create_task(lane.run())
            tasks.create_task(_follow_hints(ctx, lanes))


async def _follow_hints(ctx: SourceContext, clients: Iterable[SocketClient]) -> None:
    async for hint in ctx.hints():
        # What follows from its own claims is no news to it, nor is the end of a pod.
        if hint.pods or hint.sources - {ctx.name}:
            for lane in clients:
                lane.request_soon()
